package content

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// maxFetches limits the pieces that are fetched at one time; a manifest counts as manifestParts
	// pieces. maxPendingFetches limits the fetches that are pending, including those that wait.
	// maxFetchesPerContent limits the fetches of one content, so that a host that serves it need
	// not drop requests of this cache.
	maxFetches, maxPendingFetches, maxFetchesPerContent = 256, 1024, maxActive + maxWaiting/2
	// manifestParts is the maximum number of parts of a manifest.
	manifestParts = (maxManifest + PieceSize - 1) / PieceSize
	// manifestBytes limits the bytes of the manifests in memory. At least one manifest fits.
	manifestBytes = 32 << 20
	// absentLifetime is how long a content that could not be fetched is not requested again, and
	// maxAbsent limits the remembered contents of this kind.
	absentLifetime, maxAbsent = 3 * time.Second, 4096
)

// errBusy means that a piece is not fetched because too many others are.
var errBusy = errors.New("too many pieces are being fetched")

// fetches holds what a cache is fetching from others.
type fetches struct {
	work  *tasks.Group
	slots *semaphore.Weighted

	fetchMu    sync.Mutex
	pending    map[entry]*fetch
	perContent map[frame.GUID]*contentLimit
	manifests  []knownManifest // the most recently requested last
	absent     map[frame.GUID]time.Time
}

func newFetches() fetches {
	return fetches{
		work: tasks.New(), slots: semaphore.NewWeighted(maxFetches), pending: map[entry]*fetch{}, perContent: map[frame.GUID]*contentLimit{}, absent: map[frame.GUID]time.Time{},
	}
}

// fetch is a pending fetch of an entry, shared by all requests for it.
type fetch struct {
	done chan struct{}
	err  error // valid after done is closed
}

// contentLimit limits the pieces of one content that are fetched at one time.
type contentLimit struct {
	slots chan struct{}
	users int // guarded by fetches.fetchMu
}

// knownManifest is a manifest in memory.
type knownManifest struct {
	content frame.GUID
	*Manifest
}

// By returns the cache as a source that fetches missing pieces with a peer, from hosts that have
// the content's name.
func (c *Cache) By(p *Peer) Source { return fetcher{c, p} }

type fetcher struct {
	*Cache
	peer *Peer
}

// Prepare implements Source. A fetch that takes too long for this request continues, so that a
// later request finds the piece.
func (f fetcher) Prepare(ctx context.Context, content frame.GUID, piece uint32) (size int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.peer.Within*2/3, ErrNoAnswer) // while the requester still waits
	defer cancel()
	m, err := f.manifest(ctx, content)
	if err != nil {
		return 0, err
	}
	if size, err = m.length(piece); err != nil || piece >= Part {
		return size, err
	}
	err = f.fetch(ctx, entry{content, piece}, 1, maxAttempts*f.peer.Within, func(ctx context.Context) ([]byte, error) {
		return f.peer.GetPiece(ctx, content, content, m, int(piece))
	})
	return size, err
}

// Read implements Source.
func (f fetcher) Read(content frame.GUID, piece uint32) ([]byte, error) {
	m := f.cachedManifest(content)
	if m == nil {
		var err error
		if m, err = f.readManifest(content); err != nil {
			return nil, err
		}
	}
	if piece >= Part {
		return m.part(int(piece - Part)), nil
	}
	return f.read(entry{content, piece}, func(b []byte) error { return m.Check(int(piece), b) })
}

// manifest returns the manifest of a content, from memory, the disk, or other hosts.
func (f fetcher) manifest(ctx context.Context, content frame.GUID) (m *Manifest, err error) {
	e := entry{content, Part}
	if m = f.cachedManifest(content); m != nil {
		f.lookUp(e) // records the request
		return m, nil
	}
	if f.isAbsent(content) {
		return nil, fmt.Errorf("content %v: %w", content, ErrAbsent)
	}
	err = f.fetch(ctx, e, manifestParts, f.peer.Within, func(ctx context.Context) ([]byte, error) {
		m, err := f.peer.GetManifest(ctx, content, content)
		if err != nil {
			f.recordAbsent(content)
			return nil, err
		}
		return m.AppendTo(make([]byte, 0, m.size())), nil
	})
	if err != nil {
		return nil, err
	}
	return f.readManifest(content)
}

// readManifest reads a manifest from disk and caches it in memory.
func (f fetcher) readManifest(content frame.GUID) (m *Manifest, err error) {
	_, err = f.read(entry{content, Part}, func(b []byte) error {
		m, err = manifestIn(b, content)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.cacheManifest(content, m)
	return m, nil
}

// fetch fetches an entry if it is not in the cache, and waits for it until ctx ends. cost is the
// number of slots that the fetch uses, and within its time limit.
func (f fetcher) fetch(ctx context.Context, e entry, cost int, within time.Duration, get func(context.Context) ([]byte, error)) (err error) {
	if f.lookUp(e) {
		f.count(&f.counters.Hits)
		return nil
	}
	f.count(&f.counters.Misses)
	if x := f.startFetch(e, cost, within, get); x == nil {
		err = errBusy
	} else {
		select {
		case <-x.done:
			err = x.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		f.count(&f.counters.Failed)
	}
	return err
}

// startFetch starts to fetch an entry unless that is pending already; it returns nil if too many
// are pending.
func (f fetcher) startFetch(e entry, cost int, within time.Duration, get func(context.Context) ([]byte, error)) *fetch {
	f.fetchMu.Lock()
	defer f.fetchMu.Unlock()
	x := f.pending[e]
	if x != nil || len(f.pending) >= maxPendingFetches {
		return x
	}
	x = &fetch{done: make(chan struct{})}
	if !f.work.Start(func(ctx context.Context) { f.runFetch(ctx, x, e, cost, within, get) }) {
		return nil
	}
	f.pending[e] = x
	return x
}

// runFetch fetches an entry.
func (f fetcher) runFetch(ctx context.Context, x *fetch, e entry, cost int, within time.Duration, get func(context.Context) ([]byte, error)) {
	defer func() {
		f.fetchMu.Lock()
		defer f.fetchMu.Unlock()
		delete(f.pending, e)
		close(x.done)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, within, ErrNoAnswer)
	defer cancel()
	leave, err := f.acquire(ctx, e.content)
	if err == nil {
		defer leave()
		err = f.slots.Acquire(ctx, int64(cost))
	}
	if err != nil {
		x.err = context.Cause(ctx)
		return
	}
	defer f.slots.Release(int64(cost))
	b, err := get(ctx)
	if x.err = err; err == nil {
		f.write(e, b)
	}
}

// acquire waits for a slot of a content.
func (f *fetches) acquire(ctx context.Context, content frame.GUID) (leave func(), err error) {
	f.fetchMu.Lock()
	g := f.perContent[content]
	if g == nil {
		g = &contentLimit{slots: make(chan struct{}, maxFetchesPerContent)}
		f.perContent[content] = g
	}
	g.users++
	f.fetchMu.Unlock()
	done := func() {
		f.fetchMu.Lock()
		defer f.fetchMu.Unlock()
		if g.users--; g.users == 0 {
			delete(f.perContent, content)
		}
	}
	select {
	case g.slots <- struct{}{}:
		return func() { <-g.slots; done() }, nil
	case <-ctx.Done():
		done()
		return nil, context.Cause(ctx)
	}
}

func (f *fetches) cachedManifest(content frame.GUID) *Manifest {
	f.fetchMu.Lock()
	defer f.fetchMu.Unlock()
	i := slices.IndexFunc(f.manifests, func(k knownManifest) bool { return k.content == content })
	if i < 0 {
		return nil
	}
	k := f.manifests[i]
	f.manifests = append(slices.Delete(f.manifests, i, i+1), k)
	return k.Manifest
}

func (f *fetches) cacheManifest(content frame.GUID, m *Manifest) {
	f.fetchMu.Lock()
	defer f.fetchMu.Unlock()
	if slices.ContainsFunc(f.manifests, func(k knownManifest) bool { return k.content == content }) {
		return
	}
	f.manifests = append(f.manifests, knownManifest{content, m})
	bytes := 0
	for i := len(f.manifests) - 1; i >= 0; i-- {
		if bytes += max(f.manifests[i].size(), minCharge); bytes > manifestBytes {
			f.manifests = slices.Delete(f.manifests, 0, i+1)
			return
		}
	}
}

// isAbsent reports whether the content could not be fetched a short time ago.
func (f *fetches) isAbsent(content frame.GUID) bool {
	f.fetchMu.Lock()
	defer f.fetchMu.Unlock()
	return time.Since(f.absent[content]) < absentLifetime
}

func (f *fetches) recordAbsent(content frame.GUID) {
	f.fetchMu.Lock()
	defer f.fetchMu.Unlock()
	if len(f.absent) >= maxAbsent {
		clear(f.absent)
	}
	f.absent[content] = time.Now()
}

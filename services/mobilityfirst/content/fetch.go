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
	// fetchedAtOnce pieces are got at one time, a manifest counts as many as it has parts at most; maxFlights wait for that. Of one
	// content fetchedOfOne are got, which is what a holder gives to one name.
	fetchedAtOnce, maxFlights, fetchedOfOne = 256, 1024, askedAtOnce + maxAsked/2
	// manifestParts is how many parts a manifest has at most.
	manifestParts = (maxManifest + PieceSize - 1) / PieceSize
	// manifestBytes of manifests are in memory, those that were asked for last, or one.
	manifestBytes = 32 << 20
	// absentFor is how long a content is not asked for again that nobody gave, maxAbsent of how many that is known.
	absentFor, maxAbsent = 3 * time.Second, 4096
)

// errBusy is for a piece that is not got because too many are.
var errBusy = errors.New("as many pieces are being got as may be")

// fetching is what a cache gets from others.
type fetching struct {
	work   *tasks.Group
	places *semaphore.Weighted

	fetchMu   sync.Mutex
	flights   map[entry]*flight
	gates     map[frame.GUID]*gate
	manifests []known // those that were asked for last, last
	absent    map[frame.GUID]time.Time
}

func newFetching() fetching {
	return fetching{
		work: tasks.New(), places: semaphore.NewWeighted(fetchedAtOnce), flights: map[entry]*flight{}, gates: map[frame.GUID]*gate{}, absent: map[frame.GUID]time.Time{},
	}
}

// flight is what is being got, once for all who ask.
type flight struct {
	done chan struct{}
	err  error // to be read then
}

// gate is for the pieces of one content that are got at one time.
type gate struct {
	places chan struct{}
	users  int // fetching.fetchMu guards it
}

// known is a manifest in memory.
type known struct {
	content frame.GUID
	*Manifest
}

// By is a cache as a source, which gets what it does not have by a peer, from who has the content's name.
func (c *Cache) By(p *Peer) Source { return fetcher{c, p} }

type fetcher struct {
	*Cache
	peer *Peer
}

// Prepare implements Source. What takes too long for who asks is got all the same, for when it is asked for again.
func (f fetcher) Prepare(ctx context.Context, content frame.GUID, piece uint32) (size int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.peer.Within*2/3, ErrNoAnswer) // while who asks still waits
	defer cancel()
	m, err := f.manifest(ctx, content)
	if err != nil {
		return 0, err
	}
	if size, err = m.length(piece); err != nil || piece >= Part {
		return size, err
	}
	err = f.fetch(ctx, entry{content, piece}, 1, tries*f.peer.Within, func(ctx context.Context) ([]byte, error) {
		return f.peer.GetPiece(ctx, content, content, m, int(piece))
	})
	return size, err
}

// Read implements Source.
func (f fetcher) Read(content frame.GUID, piece uint32) ([]byte, error) {
	m := f.remembered(content)
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

// manifest gives a content's manifest, from memory, the disk, or others.
func (f fetcher) manifest(ctx context.Context, content frame.GUID) (m *Manifest, err error) {
	e := entry{content, Part}
	if m = f.remembered(content); m != nil {
		f.has(e) // it was asked for
		return m, nil
	}
	if f.isAbsent(content) {
		return nil, fmt.Errorf("content %v: %w", content, ErrAbsent)
	}
	err = f.fetch(ctx, e, manifestParts, f.peer.Within, func(ctx context.Context) ([]byte, error) {
		m, err := f.peer.GetManifest(ctx, content, content)
		if err != nil {
			f.noteAbsent(content)
			return nil, err
		}
		return m.AppendTo(make([]byte, 0, m.size())), nil
	})
	if err != nil {
		return nil, err
	}
	return f.readManifest(content)
}

// readManifest reads one from disk, and remembers it.
func (f fetcher) readManifest(content frame.GUID) (m *Manifest, err error) {
	_, err = f.read(entry{content, Part}, func(b []byte) error {
		m, err = manifestIn(b, content)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.remember(content, m)
	return m, nil
}

// fetch has an entry be on disk: if it is not there it is got, within a time, as so many, and waited for until ctx ends.
func (f fetcher) fetch(ctx context.Context, e entry, as int, within time.Duration, get func(context.Context) ([]byte, error)) (err error) {
	if f.has(e) {
		f.count(&f.counters.Hits)
		return nil
	}
	f.count(&f.counters.Misses)
	if x := f.begin(e, as, within, get); x == nil {
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

// begin has an entry got, unless that is so already; nil if too many are.
func (f fetcher) begin(e entry, as int, within time.Duration, get func(context.Context) ([]byte, error)) *flight {
	f.fetchMu.Lock()
	defer f.fetchMu.Unlock()
	x := f.flights[e]
	if x != nil || len(f.flights) >= maxFlights {
		return x
	}
	x = &flight{done: make(chan struct{})}
	if !f.work.Start(func(ctx context.Context) { f.fly(ctx, x, e, as, within, get) }) {
		return nil
	}
	f.flights[e] = x
	return x
}

// fly gets an entry.
func (f fetcher) fly(ctx context.Context, x *flight, e entry, as int, within time.Duration, get func(context.Context) ([]byte, error)) {
	defer func() {
		f.fetchMu.Lock()
		defer f.fetchMu.Unlock()
		delete(f.flights, e)
		close(x.done)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, within, ErrNoAnswer)
	defer cancel()
	leave, err := f.enter(ctx, e.content)
	if err == nil {
		defer leave()
		err = f.places.Acquire(ctx, int64(as))
	}
	if err != nil {
		x.err = context.Cause(ctx)
		return
	}
	defer f.places.Release(int64(as))
	b, err := get(ctx)
	if x.err = err; err == nil {
		f.write(e, b)
	}
}

// enter waits for a place of a content's.
func (f *fetching) enter(ctx context.Context, content frame.GUID) (leave func(), err error) {
	f.fetchMu.Lock()
	g := f.gates[content]
	if g == nil {
		g = &gate{places: make(chan struct{}, fetchedOfOne)}
		f.gates[content] = g
	}
	g.users++
	f.fetchMu.Unlock()
	done := func() {
		f.fetchMu.Lock()
		defer f.fetchMu.Unlock()
		if g.users--; g.users == 0 {
			delete(f.gates, content)
		}
	}
	select {
	case g.places <- struct{}{}:
		return func() { <-g.places; done() }, nil
	case <-ctx.Done():
		done()
		return nil, context.Cause(ctx)
	}
}

func (f *fetching) remembered(content frame.GUID) *Manifest {
	f.fetchMu.Lock()
	defer f.fetchMu.Unlock()
	i := slices.IndexFunc(f.manifests, func(k known) bool { return k.content == content })
	if i < 0 {
		return nil
	}
	k := f.manifests[i]
	f.manifests = append(slices.Delete(f.manifests, i, i+1), k)
	return k.Manifest
}

func (f *fetching) remember(content frame.GUID, m *Manifest) {
	f.fetchMu.Lock()
	defer f.fetchMu.Unlock()
	if slices.ContainsFunc(f.manifests, func(k known) bool { return k.content == content }) {
		return
	}
	f.manifests = append(f.manifests, known{content, m})
	bytes := 0
	for i := len(f.manifests) - 1; i >= 0; i-- {
		if bytes += max(f.manifests[i].size(), leastCharge); bytes > manifestBytes {
			f.manifests = slices.Delete(f.manifests, 0, i+1)
			return
		}
	}
}

// isAbsent says whether nobody gave a content a moment ago.
func (f *fetching) isAbsent(content frame.GUID) bool {
	f.fetchMu.Lock()
	defer f.fetchMu.Unlock()
	return time.Since(f.absent[content]) < absentFor
}

func (f *fetching) noteAbsent(content frame.GUID) {
	f.fetchMu.Lock()
	defer f.fetchMu.Unlock()
	if len(f.absent) >= maxAbsent {
		clear(f.absent)
	}
	f.absent[content] = time.Now()
}

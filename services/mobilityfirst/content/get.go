package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// maxAhead is the maximum number of pieces that are requested before the first of them has been
	// received.
	maxAhead = 16
	// maxAttempts is how often each piece is requested, with pauses from initialPause on, doubled
	// each time: by then another host may have the name, or the same one may have returned.
	maxAttempts, initialPause = 3, 500 * time.Millisecond
	// absentPause is the pause after a host has answered that it does not have the content. It is
	// longer than absentLifetime, for which a cache repeats this answer without asking again.
	absentPause = absentLifetime + time.Second
)

// Get gets a content from a host that has the name from, and writes the content to out in order.
// from is the content's own name, or the name of a host that fetches contents for others, such as a
// cache. If progress is not nil, Get calls it after each piece with the bytes written so far and the
// size of the content. All bytes that
// are written belong to the content, even if Get fails. The error wraps ErrWrong, ErrAbsent,
// ErrNoAnswer or hostapi.ErrClosed, or is the error of the writer or of ctx.
func (p *Peer) Get(ctx context.Context, from, content frame.GUID, out io.Writer, progress func(written, size int64)) error {
	return p.GetBy(ctx, []frame.GUID{from}, content, out, progress)
}

// GetBy gets a content as Get does, but from several names, of which there must be at least one. If
// no host of one name gives a piece, the next name is asked for it and for all later pieces.
func (p *Peer) GetBy(ctx context.Context, names []frame.GUID, content frame.GUID, out io.Writer, progress func(written, size int64)) error {
	by := &sourceNames{names: names}
	m, err := p.getManifest(ctx, by, content)
	if err != nil {
		return err
	}
	written := int64(0)
	return getAll(ctx, len(m.Pieces), func(ctx context.Context, i int) ([]byte, bool, error) {
		return p.getPiece(ctx, by, content, m, i)
	}, func(b []byte) error {
		if _, err := out.Write(b); err != nil {
			return fmt.Errorf("writing content: %w", err)
		}
		written += int64(len(b))
		if progress != nil {
			progress(written, m.Size)
		}
		return nil
	})
}

// getAll gets n pieces, some of them at one time, and passes them to take in order. get also
// reports whether the piece was late.
func getAll(ctx context.Context, n int, get func(context.Context, int) (b []byte, late bool, err error), take func([]byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	w := newWindow()
	coming := make(chan chan result, maxAhead)
	asking := tasks.New()
	defer asking.Stop()
	defer cancel()
	asking.Start(func(context.Context) {
		defer close(coming)
		for i := range n {
			if w.acquire(ctx) != nil {
				return
			}
			one := make(chan result, 1)
			asking.Start(func(context.Context) {
				b, late, err := get(ctx, i)
				w.release(late)
				one <- result{b, err}
			})
			select {
			case coming <- one:
			case <-ctx.Done():
				return
			}
		}
	})
	for one := range coming {
		r := <-one
		if r.err != nil {
			return r.err
		}
		if err := take(r.b); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// result is a received piece, or an error.
type result struct {
	b   []byte
	err error
}

// window limits the pieces that are requested at one time. The limit increases by one for each
// piece that is in time, and is halved after a late one.
type window struct {
	mu             sync.Mutex
	limit, pending int
	room           chan struct{} // signals that there may be room
}

func newWindow() *window { return &window{limit: 2, room: make(chan struct{}, 1)} }

// acquire waits until one more piece may be requested.
func (w *window) acquire(ctx context.Context) error {
	for {
		w.mu.Lock()
		may := w.pending < w.limit
		if may {
			w.pending++
		}
		w.mu.Unlock()
		if may {
			return nil
		}
		select {
		case <-w.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release records that a piece has been received, and whether it was late.
func (w *window) release(late bool) {
	w.mu.Lock()
	w.pending--
	if late {
		w.limit = max(w.limit/2, 1)
	} else {
		w.limit = min(w.limit+1, maxAhead)
	}
	w.mu.Unlock()
	select {
	case w.room <- struct{}{}:
	default:
	}
}

// GetManifest gets the manifest of a content. Its errors are those of Get.
func (p *Peer) GetManifest(ctx context.Context, by, content frame.GUID) (*Manifest, error) {
	return p.getManifest(ctx, &sourceNames{names: []frame.GUID{by}}, content)
}

func (p *Peer) getManifest(ctx context.Context, by *sourceNames, content frame.GUID) (*Manifest, error) {
	size := 0
	b, _, err := p.tryNames(ctx, by, content, Part, func(b []byte) (err error) {
		size, err = manifestSize(b)
		return err
	})
	if err != nil {
		return nil, err
	}
	part := func(ctx context.Context, i int) ([]byte, bool, error) {
		return p.tryNames(ctx, by, content, Part+1+uint32(i), func([]byte) error { return nil })
	}
	more := (size - 1) / PieceSize // the parts behind the first one
	if err := getAll(ctx, more, part, func(next []byte) error { b = append(b, next...); return nil }); err != nil {
		return nil, err
	}
	return manifestIn(b, content)
}

// manifestIn parses the manifest of a content and checks the content's name.
func manifestIn(b []byte, content frame.GUID) (*Manifest, error) {
	m, err := ParseManifest(b)
	if err == nil && m.Name() != content {
		err = fmt.Errorf("manifest of %v for that of %v: %w", m.Name(), content, ErrWrong)
	}
	return m, err
}

// GetPiece gets a piece of a content. Its errors are those of Get.
func (p *Peer) GetPiece(ctx context.Context, by, content frame.GUID, m *Manifest, piece int) ([]byte, error) {
	b, _, err := p.getPiece(ctx, &sourceNames{names: []frame.GUID{by}}, content, m, piece)
	return b, err
}

func (p *Peer) getPiece(ctx context.Context, by *sourceNames, content frame.GUID, m *Manifest, piece int) (b []byte, late bool, err error) {
	return p.tryNames(ctx, by, content, uint32(piece), func(b []byte) error { return m.Check(piece, b) })
}

// tryName requests a piece from one name, at most attempts times, until it passes the check. late
// reports whether the first attempt has failed.
func (p *Peer) tryName(ctx context.Context, by, content frame.GUID, piece uint32, attempts int, check func([]byte) error) (b []byte, late bool, err error) {
	q := p.question(by, content, piece)
	defer func() { q.end() }()
	pause := initialPause
	for n := 1; ; n++ {
		b, err = q.ask(ctx)
		if err == nil {
			if err = check(b); err == nil {
				return b, late, nil
			}
			q.end() // a repeated answer to the same request would be wrong again
			q = p.question(by, content, piece)
		}
		late = true
		if n == attempts || ctx.Err() != nil || errors.Is(err, hostapi.ErrClosed) {
			return nil, late, err
		}
		wait := pause
		if errors.Is(err, ErrAbsent) {
			wait = max(pause, absentPause)
		}
		if err := tasks.Sleep(ctx, wait); err != nil {
			return nil, late, err
		}
		pause *= 2
	}
}

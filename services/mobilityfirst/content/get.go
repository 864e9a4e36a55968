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
	// ahead is how many pieces are asked for at most before the first of them is there.
	ahead = 16
	// tries is how often each is asked for, with pauses from firstPause on, doubled each time: another may have the name by
	// then, or the same be back.
	tries, firstPause = 3, 500 * time.Millisecond
	// absentPause is the pause after one was asked who does not have it: longer than a cache takes that for so.
	absentPause = absentFor + time.Second
)

// Get gets a content from who has its name, or by another name that gets it for others, such as a cache's, and writes it
// in order. told, if it is not nil, is told of each piece how much is written, and how much there is. What is written is of
// that content, also if there is an error: that wraps ErrWrong, ErrAbsent, ErrNoAnswer or hostapi.ErrClosed, or is the
// writer's or the context's.
func (p *Peer) Get(ctx context.Context, by, content frame.GUID, out io.Writer, told func(written, size int64)) error {
	return p.GetBy(ctx, []frame.GUID{by}, content, out, told)
}

// GetBy is Get by several names, of which there is one at least: when one does not give a piece the next is asked for it,
// and for all others from then on.
func (p *Peer) GetBy(ctx context.Context, names []frame.GUID, content frame.GUID, out io.Writer, told func(written, size int64)) error {
	by := &sources{names: names}
	m, err := p.getManifest(ctx, by, content)
	if err != nil {
		return err
	}
	written := int64(0)
	return each(ctx, len(m.Pieces), func(ctx context.Context, i int) ([]byte, bool, error) {
		return p.getPiece(ctx, by, content, m, i)
	}, func(b []byte) error {
		if _, err := out.Write(b); err != nil {
			return fmt.Errorf("writing content: %w", err)
		}
		written += int64(len(b))
		if told != nil {
			told(written, m.Size)
		}
		return nil
	})
}

// each gets n pieces, some at one time, and has them taken in order. get says whether one has come late.
func each(ctx context.Context, n int, get func(context.Context, int) (b []byte, late bool, err error), take func([]byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	w := newWindow()
	coming := make(chan chan result, ahead)
	asking := tasks.New()
	defer asking.Stop()
	defer cancel()
	asking.Start(func(context.Context) {
		defer close(coming)
		for i := range n {
			if w.enter(ctx) != nil {
				return
			}
			one := make(chan result, 1)
			asking.Start(func(context.Context) {
				b, late, err := get(ctx, i)
				w.leave(late)
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

// result is what has become of a piece.
type result struct {
	b   []byte
	err error
}

// window is how many pieces are asked for at one time: one more for each that comes in time, half as many after one that does not.
type window struct {
	mu        sync.Mutex
	most, now int
	room      chan struct{} // that there may be some
}

func newWindow() *window { return &window{most: 2, room: make(chan struct{}, 1)} }

// enter waits until one more may be asked for.
func (w *window) enter(ctx context.Context) error {
	for {
		w.mu.Lock()
		may := w.now < w.most
		if may {
			w.now++
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

// leave is for one that has come, late perhaps.
func (w *window) leave(late bool) {
	w.mu.Lock()
	w.now--
	if late {
		w.most = max(w.most/2, 1)
	} else {
		w.most = min(w.most+1, ahead)
	}
	w.mu.Unlock()
	select {
	case w.room <- struct{}{}:
	default:
	}
}

// GetManifest gets the manifest of a content. Errors are those of Get.
func (p *Peer) GetManifest(ctx context.Context, by, content frame.GUID) (*Manifest, error) {
	return p.getManifest(ctx, &sources{names: []frame.GUID{by}}, content)
}

func (p *Peer) getManifest(ctx context.Context, by *sources, content frame.GUID) (*Manifest, error) {
	size := 0
	b, _, err := p.try(ctx, by, content, Part, func(b []byte) (err error) {
		size, err = manifestSize(b)
		return err
	})
	if err != nil {
		return nil, err
	}
	part := func(ctx context.Context, i int) ([]byte, bool, error) {
		return p.try(ctx, by, content, Part+1+uint32(i), func([]byte) error { return nil })
	}
	more := (size - 1) / PieceSize // parts behind the first
	if err := each(ctx, more, part, func(next []byte) error { b = append(b, next...); return nil }); err != nil {
		return nil, err
	}
	return manifestIn(b, content)
}

// manifestIn reads the manifest of a content.
func manifestIn(b []byte, content frame.GUID) (*Manifest, error) {
	m, err := ParseManifest(b)
	if err == nil && m.Name() != content {
		err = fmt.Errorf("manifest of %v for that of %v: %w", m.Name(), content, ErrWrong)
	}
	return m, err
}

// GetPiece gets a piece of a content. Errors are those of Get.
func (p *Peer) GetPiece(ctx context.Context, by, content frame.GUID, m *Manifest, piece int) ([]byte, error) {
	b, _, err := p.getPiece(ctx, &sources{names: []frame.GUID{by}}, content, m, piece)
	return b, err
}

func (p *Peer) getPiece(ctx context.Context, by *sources, content frame.GUID, m *Manifest, piece int) (b []byte, late bool, err error) {
	return p.try(ctx, by, content, uint32(piece), func(b []byte) error { return m.Check(piece, b) })
}

// tryBy asks by one name for a piece, so often at most, until it is the one, and says whether that was not in time at first.
func (p *Peer) tryBy(ctx context.Context, by, content frame.GUID, piece uint32, often int, check func([]byte) error) (b []byte, late bool, err error) {
	q := p.question(by, content, piece)
	defer func() { q.end() }()
	pause := firstPause
	for n := 1; ; n++ {
		b, err = q.ask(ctx)
		if err == nil {
			if err = check(b); err == nil {
				return b, late, nil
			}
			q.end() // whoever gives something else would do so again
			q = p.question(by, content, piece)
		}
		late = true
		if n == often || ctx.Err() != nil || errors.Is(err, hostapi.ErrClosed) {
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

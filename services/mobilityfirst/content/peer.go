package content

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// Errors of what was asked for; others wrap them.
var (
	// ErrAbsent is for what somebody does not have.
	ErrAbsent = errors.New("who was asked does not have it")
	// ErrNoAnswer is for when nobody answers in time.
	ErrNoAnswer = errors.New("no answer")
)

// DefaultWithin is Options.Within where that says nothing: for so long hosts keep requests and responses.
const DefaultWithin = hostapi.ContentWithin

// Options are what a Peer works with.
type Options struct {
	// Host is where its name is attached. Chunks that come there are the Peer's, which closes it.
	Host *hostapi.Client
	// Source is what it gives to others; nil for nothing.
	Source Source
	// Within is how long a response may take. Zero for DefaultWithin.
	Within time.Duration
	// Log is where it says what fails; nil for nowhere.
	Log *slog.Logger
}

// Peer asks for pieces, and gives them. Its methods may be called concurrently.
type Peer struct {
	Options
	strange lograte.Limit
	serving

	mu    sync.Mutex
	asked map[uint64]chan<- response // by number
	ended chan struct{}
	err   error // why it has ended; to be read then
}

// New returns a peer that does nothing until Run.
func New(o Options) *Peer {
	if o.Within == 0 {
		o.Within = DefaultWithin
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Peer{Options: o, asked: map[uint64]chan<- response{}, ended: make(chan struct{}), serving: newServing()}
}

// Run takes what comes until ctx ends, or the host does: then the error says so.
func (p *Peer) Run(ctx context.Context) (err error) {
	work := tasks.New()
	defer work.Stop()
	defer func() {
		_ = p.Host.Close() // ends what waits
		p.err = errors.Join(hostapi.ErrClosed, err)
		close(p.ended)
	}()
	for {
		x, err := p.Host.Receive(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = p.Host.Take(x)
		}
		if err != nil {
			return err
		}
		switch x.Service {
		case frame.ContentRequest:
			err = p.request(work, x)
		case frame.ContentResponse:
			err = p.response(x)
		default:
			err = fmt.Errorf("service %#04x: %w", uint16(x.Service), ErrMessage)
		}
		if err != nil {
			p.strange.Warn(p.Log, "a chunk was left out", "from", x.From, "error", err)
		}
	}
}

// response hands a response to who waits for it. Whoever it comes from knows the number, and what it holds is looked at
// by its hash.
func (p *Peer) response(x hostapi.Chunk) error {
	r, err := parseResponse(x.Payload)
	if err != nil {
		return err
	}
	p.mu.Lock()
	waits := p.asked[r.Number]
	p.mu.Unlock()
	if waits != nil && len(r.Data) <= PieceSize { // or nobody does any more, or for that
		select {
		case waits <- r:
		default: // it has one
		}
	}
	return nil
}

// question is a piece that is asked for, under one number until it is there: an answer that comes late is an answer.
type question struct {
	request
	peer   *Peer
	of     frame.GUID
	answer chan response
}

// question begins one. It is to be ended.
func (p *Peer) question(of, content frame.GUID, piece uint32) *question {
	q := &question{request{rand.Uint64(), content, piece}, p, of, make(chan response, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[q.Number] = q.answer
	return q
}

func (q *question) end() {
	q.peer.mu.Lock()
	defer q.peer.mu.Unlock()
	delete(q.peer.asked, q.Number)
}

// ask asks, and waits until there is an answer other than that it is to be asked again. The error wraps ErrAbsent, ErrNoAnswer
// or hostapi.ErrClosed, or is the context's.
func (q *question) ask(ctx context.Context) (b []byte, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, q.peer.Within, ErrNoAnswer)
	defer cancel()
	r, err := q.once(limited)
	if err == nil && r.Verdict == again {
		r, err = q.once(limited)
	}
	switch {
	case err == nil && r.Verdict == given:
		return r.Data, nil
	case err == nil && r.Verdict == absent:
		err = ErrAbsent
	case err == nil:
		err = ErrNoAnswer
	case limited.Err() != nil:
		err = context.Cause(limited)
	}
	return nil, fmt.Errorf("content %v from %v: %w", q.Content, q.of, err)
}

// once asks once. A piece that has come since it was asked for before is the answer; what else was said then holds no more.
func (q *question) once(ctx context.Context) (r response, err error) {
	select {
	case r = <-q.answer:
		if r.Verdict == given {
			return r, nil
		}
	default:
	}
	failed := make(chan error, 1)
	err = q.peer.Host.Send(ctx, q.of, frame.ContentRequest, q.appendTo(nil), func(err error) {
		if err != nil {
			failed <- fmt.Errorf("%w: %w", ErrNoAnswer, err)
		}
	})
	if err != nil {
		return r, err
	}
	select {
	case r = <-q.answer:
		return r, nil
	case err = <-failed:
		return r, err
	case <-ctx.Done():
		return r, ctx.Err()
	case <-q.peer.ended:
		return r, q.peer.err
	}
}

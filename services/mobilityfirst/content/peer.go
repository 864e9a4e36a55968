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

// Errors that other errors wrap.
var (
	// ErrAbsent means that a host does not have the content.
	ErrAbsent = errors.New("the host does not have the content")
	// ErrNoAnswer means that no host has answered in time.
	ErrNoAnswer = errors.New("no answer")
)

// DefaultWithin is the default of Options.Within. Hosts keep requests and responses for this long.
const DefaultWithin = hostapi.ContentWithin

// Options configures a Peer.
type Options struct {
	// Host is the host at which the peer's name is attached. The Peer receives all of its chunks,
	// and closes it.
	Host *hostapi.Client
	// Source contains what the peer serves; nil means nothing.
	Source Source
	// Within is how long a response may take. Zero selects DefaultWithin.
	Within time.Duration
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// Peer requests pieces and serves them. Its methods may be called concurrently.
type Peer struct {
	Options
	warnLimit lograte.Limit
	serving

	mu      sync.Mutex
	pending map[uint64]chan<- response // by the number of the request
	done    chan struct{}
	err     error // why the peer has ended; valid after done is closed
}

// New returns a peer that does nothing until Run is called.
func New(o Options) *Peer {
	if o.Within == 0 {
		o.Within = DefaultWithin
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Peer{Options: o, pending: map[uint64]chan<- response{}, done: make(chan struct{}), serving: newServing()}
}

// Run handles chunks until ctx ends or the host fails, which it returns as an error.
func (p *Peer) Run(ctx context.Context) (err error) {
	work := tasks.New()
	defer work.Stop()
	defer func() {
		_ = p.Host.Close() // this ends all waiting calls
		p.err = errors.Join(hostapi.ErrClosed, err)
		close(p.done)
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
			p.warnLimit.Warn(p.Log, "a chunk was left out", "from", x.From, "error", err)
		}
	}
}

// response passes a response to the request that waits for it. The sender of the response need not
// be checked: only hosts that have received the request know its number, and the data are verified
// by their hash.
func (p *Peer) response(x hostapi.Chunk) error {
	r, err := parseResponse(x.Payload)
	if err != nil {
		return err
	}
	p.mu.Lock()
	waits := p.pending[r.Number]
	p.mu.Unlock()
	if waits != nil && len(r.Data) <= PieceSize { // otherwise the request has ended, or the response is too large
		select {
		case waits <- r:
		default: // the request has an answer already
		}
	}
	return nil
}

// question is a request for a piece. Its number stays the same when it is repeated, so an answer to
// an earlier attempt still counts.
type question struct {
	request
	peer   *Peer
	holder frame.GUID
	answer chan response
}

// question registers a request, which the caller has to end.
func (p *Peer) question(of, content frame.GUID, piece uint32) *question {
	q := &question{request{rand.Uint64(), content, piece}, p, of, make(chan response, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending[q.Number] = q.answer
	return q
}

func (q *question) end() {
	q.peer.mu.Lock()
	defer q.peer.mu.Unlock()
	delete(q.peer.pending, q.Number)
}

// ask sends the request and waits for an answer. If the answer is verdictRetry, ask sends the
// request once more. The error wraps ErrAbsent, ErrNoAnswer or hostapi.ErrClosed, or is that of
// ctx.
func (q *question) ask(ctx context.Context) (b []byte, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, q.peer.Within, ErrNoAnswer)
	defer cancel()
	r, err := q.once(limited)
	if err == nil && r.Verdict == verdictRetry {
		r, err = q.once(limited)
	}
	switch {
	case err == nil && r.Verdict == verdictGiven:
		return r.Data, nil
	case err == nil && r.Verdict == verdictAbsent:
		err = ErrAbsent
	case err == nil:
		err = ErrNoAnswer
	case limited.Err() != nil:
		err = context.Cause(limited)
	}
	return nil, fmt.Errorf("content %v from %v: %w", q.Content, q.holder, err)
}

// once sends the request once and returns the answer. If an answer with the piece has arrived since
// an earlier attempt, once returns that answer; it discards any other earlier answer.
func (q *question) once(ctx context.Context) (r response, err error) {
	select {
	case r = <-q.answer:
		if r.Verdict == verdictGiven {
			return r, nil
		}
	default:
	}
	failed := make(chan error, 1)
	err = q.peer.Host.Send(ctx, q.holder, frame.ContentRequest, q.appendTo(nil), func(err error) {
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
	case <-q.peer.done:
		return r, q.peer.err
	}
}

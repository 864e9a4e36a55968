package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Ping asks the host of a name whether it is there, and says how long the answer took. It waits for a
// way until ctx ends. The error wraps ErrTooMany, ErrClosed, or the context's.
func (e *Endpoint) Ping(ctx context.Context, to frame.GUID) (time.Duration, error) {
	o, err := e.pinging(to)
	if err != nil {
		return 0, err
	}
	h, id := e.host, frame.Stream(0)
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		o.pings--
		delete(h.pings, id)
	}()
	for {
		h.mu.Lock()
		sent, changed, answered := time.Now(), o.changed, make(chan struct{})
		var again <-chan time.Time
		if p := o.path; p != nil {
			delete(h.pings, id)
			id = frame.Stream(rand.Uint64())
			h.pings[id] = answered
			p.link.tell(p.mac, p.tag, &frame.StreamQuery{Stream: id})
			again = time.After(pingAgain)
		}
		h.mu.Unlock()
		select {
		case <-answered:
			return time.Since(sent), nil
		case <-changed:
		case <-again:
			h.mu.Lock()
			if h.out[o.way] == o {
				o.ask(time.Now())
			}
			h.mu.Unlock()
		case <-e.closed:
			return 0, fmt.Errorf("name %v: %w", e.Name, ErrClosed)
		case <-ctx.Done():
			return 0, fmt.Errorf("no answer from %v: %w", to, ctx.Err())
		}
	}
}

// pingAgain is how long an answer to a ping is waited for before there is another.
const pingAgain = time.Second

// pinging has a way to a name looked for.
func (e *Endpoint) pinging(to frame.GUID) (*outgoing, error) {
	h := e.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.isClosed() {
		return nil, fmt.Errorf("name %v: %w", e.Name, ErrClosed)
	}
	o, err := h.outgoingTo(e, to)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	o.pings++
	o.used = now
	o.move(now)
	return o, nil
}

package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Ping asks the host of a name for an answer, and returns how long it took. It waits for a path
// until ctx ends. The error wraps ErrTooMany, ErrClosed, or that of ctx.
func (e *Endpoint) Ping(ctx context.Context, to frame.GUID) (time.Duration, error) {
	o, err := e.startPing(to)
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
			p.link.sendControl(p.mac, p.tag, &frame.StreamQuery{Stream: id})
			again = time.After(pingRetry)
		}
		h.mu.Unlock()
		select {
		case <-answered:
			return time.Since(sent), nil
		case <-changed:
		case <-again:
			h.mu.Lock()
			if h.outgoing[o.streamKey] == o {
				o.requestPath(time.Now())
			}
			h.mu.Unlock()
		case <-e.closed:
			return 0, fmt.Errorf("name %v: %w", e.Name, ErrClosed)
		case <-ctx.Done():
			return 0, fmt.Errorf("no answer from %v: %w", to, ctx.Err())
		}
	}
}

// pingRetry is how long Ping waits for an answer before it sends another ping.
const pingRetry = time.Second

// startPing looks for a path to a name.
func (e *Endpoint) startPing(to frame.GUID) (*outgoing, error) {
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
	o.lastUsed = now
	o.proceed(now)
	return o, nil
}

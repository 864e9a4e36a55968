package access

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// maxFlows limits the destinations of one host's chunks, and maxChunks the number of its
	// chunks.
	maxFlows, maxChunks = 256, 4096
	// minCharge is the least memory in bytes that a chunk of a host is charged for.
	minCharge = 4 << 10
	// At most windowBytes, or one chunk, are in flight to a destination that has taken over a chunk
	// or answered a ping within provenLifetime. Other destinations are pinged first, with
	// pingTimeout, so that chunks for absent destinations do not delay others.
	windowBytes, provenLifetime, pingTimeout = 4 << 20, 5 * time.Minute, time.Second
	// initialRetry is the pause after the first ping without an answer, or after the first chunk
	// that was not taken. The pause is doubled after each further failure, up to maxDoublings
	// times, until a ping or a chunk succeeds.
	initialRetry, maxDoublings = 250 * time.Millisecond, 4
)

// keptChunk is a chunk that the router has taken over from a host.
type keptChunk struct {
	service  frame.Service
	payload  []byte
	until    time.Time
	inFlight bool // it is in flight
}

func (k *keptChunk) charge() int { return max(len(k.payload)+hostapi.Overhead, minCharge) }

// flow holds the chunks of a host for one destination, in order. Router.mu guards the fields that
// change.
type flow struct {
	guest *guest
	to    frame.GUID
	wake  chan struct{} // signals that there may be something to do

	queue     []*keptChunk
	heldBytes int // the memory that the queue is charged for
	running   bool
	// inFlight is the number of chunks in flight, and inFlightBytes their size. They are the first
	// chunks of the queue, unless some have failed.
	inFlight, inFlightBytes int
	proven                  time.Time // when a chunk was last taken over or a ping answered
	failed                  bool      // a chunk was not taken: nothing is sent until all chunks in flight have ended
	failures                int       // since a chunk was last taken over
	unanswered              int       // since a ping was last answered
	retryAt                 time.Time // nothing is sent before this time
	skipRetry               bool      // retryAt is ignored once, because the host has left
}

// accept takes over the chunk of a complete reassembly. The caller then drops the reassembly, so
// accept does not count its memory. accept returns false if there is no room for the chunk.
// Router.mu is held.
func (g *guest) accept(x *reassembly, now time.Time) bool {
	l := x.message
	if g.version = l.version; l.control {
		return true
	}
	k := &keptChunk{service: l.service, payload: l.payload, until: now.Add(g.router.Keep)}
	f := g.flows[l.to]
	held := g.heldBytes - x.charge // the memory in use without that of the reassembly
	if g.ending || g.keptChunks == maxChunks || f == nil && len(g.flows) == maxFlows || held+k.charge() > g.router.Memory || !f.mayAdd(k, held) {
		return false
	}
	if f == nil {
		f = &flow{guest: g, to: l.to, wake: make(chan struct{}, 1)}
		g.flows[l.to] = f
	}
	f.queue = append(f.queue, k)
	f.heldBytes += k.charge()
	g.keptChunks++
	g.heldBytes += k.charge()
	if s := g.session; s != nil && !f.running {
		f.running = s.work.Start(func(ctx context.Context) { s.sendFlow(ctx, f) })
	}
	f.wakeUp()
	return true
}

// mayAdd reports whether one more chunk leaves room for other destinations. A flow with more than
// one chunk may use at most half of the chunks and bytes that the host's other flows leave free.
// held is the memory that the host uses. Router.mu is held.
func (f *flow) mayAdd(k *keptChunk, held int) bool {
	if f == nil || len(f.queue) == 0 {
		return true
	}
	g := f.guest
	chunks, bytes := maxChunks-(g.keptChunks-len(f.queue)), g.router.Memory-(held-f.heldBytes)
	return len(f.queue)+1 <= chunks/2 && f.heldBytes+k.charge() <= bytes/2
}

func (f *flow) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// remove removes a chunk, and the flow if it was the last one. Router.mu is held.
func (f *flow) remove(k *keptChunk) {
	if len(f.queue) > 0 && f.queue[0] == k {
		f.queue[0] = nil
		f.queue = f.queue[1:]
	} else {
		f.queue = slices.DeleteFunc(f.queue, func(other *keptChunk) bool { return other == k })
	}
	f.discount(k)
}

// discount stops counting a chunk, and removes the flow if it was the last one. Router.mu is held.
func (f *flow) discount(k *keptChunk) {
	g := f.guest
	f.heldBytes -= k.charge()
	g.keptChunks--
	g.heldBytes -= k.charge()
	if len(f.queue) == 0 && !f.running {
		delete(g.flows, f.to)
	}
}

// expire removes chunks that have been kept for too long, except those in flight. The first chunks
// are the oldest. Router.mu is held.
func (f *flow) expire(now time.Time) {
	n := slices.IndexFunc(f.queue, func(k *keptChunk) bool { return !now.After(k.until) })
	if n < 0 {
		n = len(f.queue)
	}
	var expired []*keptChunk
	left := slices.DeleteFunc(f.queue[:n], func(k *keptChunk) bool {
		if !k.inFlight {
			expired = append(expired, k)
		}
		return !k.inFlight
	})
	f.queue = slices.Delete(f.queue, len(left), n)
	for _, k := range expired {
		f.discount(k)
	}
	if r := f.guest.router; len(expired) > 0 {
		r.counters.Expired += uint64(len(expired))
		r.warnLimit.Warn(r.Log, "chunks were not taken in time", "chunks", len(expired), "guid", f.guest.GUID, "for", f.to)
	}
}

// sendFlow sends the chunks of a flow until there are none or ctx ends.
func (s *session) sendFlow(ctx context.Context, f *flow) {
	for {
		chunks, ask, done := s.nextChunks(ctx, f, time.Now())
		switch {
		case done:
			return
		case ask:
			_, err := s.client.Ping(f.to, pingTimeout)
			s.pinged(f, err == nil, time.Now())
			continue
		}
		for _, k := range chunks {
			if err := s.client.Send(ctx, f.to, k.service, k.payload, func(err error) { s.sendEnded(f, k, err) }); err != nil {
				s.sendFailed(f, k)
			}
		}
		if len(chunks) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-time.After(initialRetry):
		}
	}
}

// nextChunks returns the chunks that may be sent now. ask is set if the destination has to be
// pinged first, and done if there are no more chunks.
func (s *session) nextChunks(ctx context.Context, f *flow, now time.Time) (chunks []*keptChunk, ask, done bool) {
	r := s.guest.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.expire(now); len(f.queue) == 0 || ctx.Err() != nil {
		if f.running = false; len(f.queue) == 0 {
			delete(s.guest.flows, f.to)
		}
		return nil, false, true
	}
	if f.failed && f.inFlight == 0 {
		f.failed, f.proven, f.retryAt = false, time.Time{}, now.Add(initialRetry<<min(f.failures, maxDoublings))
		f.failures++
	}
	if f.failed || now.Before(f.retryAt) && !f.skipRetry {
		return nil, false, false
	}
	f.skipRetry = false
	for _, k := range f.queue[f.inFlight:] {
		size := k.charge()
		switch {
		case s.leaving: // everything is sent
		case now.Sub(f.proven) >= provenLifetime && k.service&frame.DelayTolerant == 0:
			return chunks, f.inFlight == 0, false
		case f.inFlight > 0 && f.inFlightBytes+size > windowBytes:
			return chunks, false, false
		}
		k.inFlight = true
		f.inFlight++
		f.inFlightBytes += size
		chunks = append(chunks, k)
	}
	return chunks, false, false
}

// pinged records the result of a ping.
func (s *session) pinged(f *flow, answered bool, now time.Time) {
	r := s.guest.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if answered {
		f.proven, f.unanswered = now, 0
	} else {
		f.retryAt = now.Add(initialRetry << min(f.unanswered, maxDoublings))
		f.unanswered++
	}
}

// ended records that a chunk is no longer in flight. Router.mu is held.
func (f *flow) ended(k *keptChunk) {
	k.inFlight = false
	f.inFlight--
	f.inFlightBytes -= k.charge()
}

// sendFailed records that a chunk could not be passed to the host.
func (s *session) sendFailed(f *flow, k *keptChunk) {
	r := s.guest.router
	r.mu.Lock()
	defer r.mu.Unlock()
	f.ended(k)
	f.failed = true
}

// sendEnded records the result of a chunk that was passed to the host.
func (s *session) sendEnded(f *flow, k *keptChunk, err error) {
	r := s.guest.router
	r.mu.Lock()
	defer r.mu.Unlock()
	f.ended(k)
	switch {
	case err == nil:
		f.proven, f.failures, f.unanswered = time.Now(), 0, 0
		r.counters.Taken++
		f.remove(k)
	case s.closed && errors.Is(err, hostapi.ErrClosed): // the host continues to send it
		r.counters.Left++
		f.remove(k)
	default:
		f.failed = true
	}
	f.wakeUp()
}

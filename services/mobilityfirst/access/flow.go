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
	// maxFlows is for how many destinations there may be chunks of one host, maxChunks how many chunks of it.
	maxFlows, maxChunks = 256, 4096
	// leastCharge is what a chunk of a host counts at least.
	leastCharge = 4 << 10
	// Of a destination that has taken something within provenFor, windowBytes are under way, or one chunk. Another is asked
	// for a sign first, for pingWithin: what is for one that is away is in nobody's way.
	windowBytes, provenFor, pingWithin = 4 << 20, 5 * time.Minute, time.Second
	// retryAfter is how long is waited after there was no sign, or something was not taken; then for this twice as long each
	// time, as often as mostDoublings, until there is one or something is.
	retryAfter, mostDoublings = 250 * time.Millisecond, 4
)

// kept is a chunk that a host has handed over.
type kept struct {
	service frame.Service
	payload []byte
	until   time.Time
	ahead   bool // it is under way
}

func (k *kept) charge() int { return max(len(k.payload)+hostapi.Overhead, leastCharge) }

// flow are the chunks of a host for one destination, in order. Router.mu guards what changes.
type flow struct {
	guest *guest
	to    frame.GUID
	wake  chan struct{} // that there may be something to do

	queue   []*kept
	held    int // what these count
	running bool
	// ahead is how many of these are under way, the first of them unless some have failed; aheadBytes are their bytes.
	ahead, aheadBytes int
	proven            time.Time // when something was taken last, or there was a sign
	failed            bool      // something was not taken: nothing is sent until all that is under way has ended
	failures          int       // since something was taken last
	silences          int       // since there was a sign last
	again             time.Time // nothing is sent before
	hurry             bool      // but once: the host is gone
}

// accept takes a whole chunk into custody, in place of what has come of it; false if there is no room. Router.mu is held.
func (g *guest) accept(x *gather, now time.Time) bool {
	l := x.letter
	if g.version = l.version; l.control {
		return true
	}
	k := &kept{service: l.service, payload: l.payload, until: now.Add(g.router.Keep)}
	f := g.flows[l.to]
	held := g.held - x.charge // by all others
	if g.ending || g.chunks == maxChunks || f == nil && len(g.flows) == maxFlows || held+k.charge() > g.router.Memory || !f.may(k, held) {
		return false
	}
	if f == nil {
		f = &flow{guest: g, to: l.to, wake: make(chan struct{}, 1)}
		g.flows[l.to] = f
	}
	f.queue = append(f.queue, k)
	f.held += k.charge()
	g.chunks++
	g.held += k.charge()
	if s := g.session; s != nil && !f.running {
		f.running = s.work.Start(func(ctx context.Context) { s.carry(ctx, f) })
	}
	f.kick()
	return true
}

// may says whether one chunk more leaves room for other destinations: more than one has half of what these do not have, where held is
// what the host has of memory. Router.mu is held.
func (f *flow) may(k *kept, held int) bool {
	if f == nil || len(f.queue) == 0 {
		return true
	}
	g := f.guest
	chunks, bytes := maxChunks-(g.chunks-len(f.queue)), g.router.Memory-(held-f.held)
	return len(f.queue)+1 <= chunks/2 && f.held+k.charge() <= bytes/2
}

func (f *flow) kick() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// remove forgets a chunk, and the flow if that was the last. Router.mu is held.
func (f *flow) remove(k *kept) {
	if len(f.queue) > 0 && f.queue[0] == k {
		f.queue[0] = nil
		f.queue = f.queue[1:]
	} else {
		f.queue = slices.DeleteFunc(f.queue, func(other *kept) bool { return other == k })
	}
	f.discount(k)
}

// discount counts a chunk no more, and forgets the flow if it was the last. Router.mu is held.
func (f *flow) discount(k *kept) {
	g := f.guest
	f.held -= k.charge()
	g.chunks--
	g.held -= k.charge()
	if len(f.queue) == 0 && !f.running {
		delete(g.flows, f.to)
	}
}

// expire forgets chunks that were kept for as long as they are, the first of which are the oldest; not those that are under way.
// Router.mu is held.
func (f *flow) expire(now time.Time) {
	n := slices.IndexFunc(f.queue, func(k *kept) bool { return !now.After(k.until) })
	if n < 0 {
		n = len(f.queue)
	}
	var over []*kept
	left := slices.DeleteFunc(f.queue[:n], func(k *kept) bool {
		if !k.ahead {
			over = append(over, k)
		}
		return !k.ahead
	})
	f.queue = slices.Delete(f.queue, len(left), n)
	for _, k := range over {
		f.discount(k)
	}
	if r := f.guest.router; len(over) > 0 {
		r.counters.Expired += uint64(len(over))
		r.strange.Warn(r.Log, "chunks were not taken in time", "chunks", len(over), "guid", f.guest.GUID, "for", f.to)
	}
}

// carry sends what there is of a flow, until there is nothing or ctx ends.
func (s *session) carry(ctx context.Context, f *flow) {
	for {
		some, ask, over := s.next(ctx, f, time.Now())
		switch {
		case over:
			return
		case ask:
			_, err := s.client.Ping(f.to, pingWithin)
			s.asked(f, err == nil, time.Now())
			continue
		}
		for _, k := range some {
			if err := s.client.Send(ctx, f.to, k.service, k.payload, func(err error) { s.became(f, k, err) }); err != nil {
				s.unsent(f, k)
			}
		}
		if len(some) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-time.After(retryAfter):
		}
	}
}

// next are the chunks that may be sent now; or the destination is to be asked for a sign, or there are no more.
func (s *session) next(ctx context.Context, f *flow, now time.Time) (some []*kept, ask, over bool) {
	r := s.guest.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.expire(now); len(f.queue) == 0 || ctx.Err() != nil {
		if f.running = false; len(f.queue) == 0 {
			delete(s.guest.flows, f.to)
		}
		return nil, false, true
	}
	if f.failed && f.ahead == 0 {
		f.failed, f.proven, f.again = false, time.Time{}, now.Add(retryAfter<<min(f.failures, mostDoublings))
		f.failures++
	}
	if f.failed || now.Before(f.again) && !f.hurry {
		return nil, false, false
	}
	f.hurry = false
	for _, k := range f.queue[f.ahead:] {
		size := k.charge()
		switch {
		case s.leaving: // all goes that can
		case now.Sub(f.proven) >= provenFor && k.service&frame.DelayTolerant == 0:
			return some, f.ahead == 0, false
		case f.ahead > 0 && f.aheadBytes+size > windowBytes:
			return some, false, false
		}
		k.ahead = true
		f.ahead++
		f.aheadBytes += size
		some = append(some, k)
	}
	return some, false, false
}

// asked notes whether a destination has given a sign.
func (s *session) asked(f *flow, is bool, now time.Time) {
	r := s.guest.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if is {
		f.proven, f.silences = now, 0
	} else {
		f.again = now.Add(retryAfter << min(f.silences, mostDoublings))
		f.silences++
	}
}

// back notes that a chunk is not under way any more. Router.mu is held.
func (f *flow) back(k *kept) {
	k.ahead = false
	f.ahead--
	f.aheadBytes -= k.charge()
}

// unsent notes that the host of ours has not got a chunk.
func (s *session) unsent(f *flow, k *kept) {
	r := s.guest.router
	r.mu.Lock()
	defer r.mu.Unlock()
	f.back(k)
	f.failed = true
}

// became notes what has become of a chunk that the host of ours has got.
func (s *session) became(f *flow, k *kept, err error) {
	r := s.guest.router
	r.mu.Lock()
	defer r.mu.Unlock()
	f.back(k)
	switch {
	case err == nil:
		f.proven, f.failures, f.silences = time.Now(), 0, 0
		r.counters.Taken++
		f.remove(k)
	case s.closed && errors.Is(err, hostapi.ErrClosed): // the host of ours goes on with it
		r.counters.Left++
		f.remove(k)
	default:
		f.failed = true
	}
	f.kick()
}

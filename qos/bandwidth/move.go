package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
)

const (
	// pressedFor is how many readings in a row must show that a link cannot keep a
	// promise, and tolerance the part of the rate, in percent, that it may lack.
	pressedFor = 2
	tolerance  = 5
)

// errNoChange: somebody else has ended or changed the flow meanwhile.
var errNoChange = errors.New("nothing to be done")

// choosePath finds a flow a new place and tells the present one. f.changing is locked.
func (s *Service) choosePath(f *flow) (old, p placement, err error) {
	old, err = s.present(f)
	if err == nil {
		p, err = s.choose(f)
	}
	return old, p, err
}

// present is where a flow stands, if it still does.
func (s *Service) present(f *flow) (placement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.ended {
		return placement{}, errNoChange
	}
	return placement{path: f.path, state: f.state, reason: f.reason}, nil
}

// move brings a flow to a new place: what is to be written first, what is to be deleted
// after it has been confirmed. The promise stands in the book already. f.changing is locked.
func (s *Service) move(ctx context.Context, f *flow, old, p placement, why string) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, placeFor)
	defer cancel()
	if err := s.install(ctx, f, p, true); err != nil {
		s.restore(f, old)
		s.log.Warn("a flow could not be moved", "flow", f.header, "error", err)
		return
	}
	s.mu.Lock()
	same := slices.Equal(old.path.Hops, p.path.Hops)
	if !same {
		f.moves++
	}
	s.enter(f, p)
	s.mu.Unlock()
	s.guard.adjust(ctx, links(old.path))
	if !same {
		s.metrics.moves.WithLabelValues().Observe(time.Since(begin).Seconds())
	}
	s.log.Info("a flow has been moved", "flow", f.header, "because", why, "state", p.state, "took", time.Since(begin))
	r := s.recordOf(f)
	s.publish("flow.moved", map[string]any{"cause": why, "took": time.Since(begin).Seconds(), "flow": r})
	if old.state == StateAccepted && p.state == StateBestEffort {
		s.publish("flow.degraded", map[string]any{"flow": r, "reason": p.reason})
	}
	s.save(f)
}

func (s *Service) recordOf(f *flow) Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.record()
}

// restore enters again what a placement holds.
func (s *Service) restore(f *flow, p placement) {
	if p.state == StateAccepted {
		s.book.Restore(s.promiseOf(f, p.path))
		return
	}
	s.book.Restore(yielding(f, p.path))
}

// relieve moves flows away from links that cannot keep what was promised there,
// because they have less capacity than they had, or of traffic that nobody holds back. Of one link one flow is moved at a
// time, the youngest first: what that gives is known after the next readings. It takes
// half of the time until those at most.
func (s *Service) relieve(ctx context.Context) {
	begin := time.Now()
	relieved := map[network.PortRef]bool{}
	for _, f := range slices.Backward(s.all()) {
		if s.displace(ctx, f) {
			continue
		}
		at, free, readings := s.oversubscribed(f)
		if readings < pressedFor || relieved[at] || time.Since(begin) > s.interval/2 {
			continue
		}
		why := fmt.Sprintf("the link from %v has %d bit/s left for it", at, free)
		if s.upgrade(ctx, f, why) {
			relieved[at] = true
			continue
		}
		s.mu.Lock()
		f.pressure = why + ", and no other path has enough"
		s.mu.Unlock()
		if r := s.recordOf(f); readings == pressedFor && r.State == StateAccepted {
			s.publish("flow.oversubscribed", map[string]any{"flow": r, "reason": why + ", and no other path has enough"})
		}
	}
}

// displace moves a flow whose promise does not fit any more, because a link of its path
// has less capacity than when it was made. Where no other path has enough nothing is
// promised to it any more. It says whether there was something to be done.
func (s *Service) displace(ctx context.Context, f *flow) bool {
	if s.book.Overbooked(f.promise()) == nil {
		return false
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	short := s.book.Overbooked(f.promise())
	old, err := s.present(f)
	if short == nil || err != nil || old.state != StateAccepted {
		return true // changed meanwhile
	}
	if p, err := s.choose(f); err == nil {
		s.move(ctx, f, old, p, fmt.Sprintf("its promise does not fit any more: %v", short))
	}
	return true
}

// oversubscribed finds the link that cannot keep what the flow was promised, and for how many
// readings in a row there has been one.
func (s *Service) oversubscribed(f *flow) (at network.PortRef, free uint64, readings int) {
	yes := false
	s.mu.Lock()
	path, accepted := f.path, f.state == StateAccepted && f.closed != closedBoth
	s.mu.Unlock()
	if !accepted {
		return at, 0, 0
	}
	for _, share := range shares(path, f.rate, f.reverse) {
		if s.net.IsEdge(share.Link) {
			continue
		}
		if free = s.book.Left(share.Link, f.promise()); free < share.Rate-share.Rate*tolerance/100 {
			at, yes = share.Link, true
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !yes {
		f.oversubscribed, f.pressure = 0, ""
		return at, 0, 0
	}
	f.oversubscribed++
	return at, free, f.oversubscribed
}

// retry accepts flows for which there was no room when they came. It takes half of the
// time until the next reading at most.
func (s *Service) retry(ctx context.Context) {
	begin := time.Now()
	for _, f := range s.all() {
		if ctx.Err() != nil || time.Since(begin) > s.interval/2 {
			return
		}
		if s.waits(f) {
			s.upgrade(ctx, f, "there is room for it now")
		}
	}
}

// waits says whether a flow is to be accepted when there is room for it.
func (s *Service) waits(f *flow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.state == StateBestEffort && f.closed != closedBoth && !(f.once && f.accepted.IsZero())
}

// upgrade gives a flow a path with enough available, if there is one.
func (s *Service) upgrade(ctx context.Context, f *flow, why string) bool {
	f.changing.Lock()
	defer f.changing.Unlock()
	old, err := s.present(f)
	if err != nil || s.isClosed(f) {
		return false
	}
	path, err := s.accept(f)
	if err != nil || old.state == StateAccepted && slices.Equal(path.Hops, old.path.Hops) {
		return false
	}
	s.move(ctx, f, old, placement{path: path, state: StateAccepted}, why)
	return true
}

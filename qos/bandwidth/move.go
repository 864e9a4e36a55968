package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/reserve"
)

const (
	// grace is how long a switch of a path may be without a connection to the
	// controller before it is taken for dead: it may have lost that alone. startGrace
	// is the same after a start, when all have to come back.
	grace      = 3 * time.Second
	startGrace = 15 * time.Second
	// maxMoves is how many flows are moved at once.
	maxMoves = 64
	// pressedFor is how many readings in a row must show that a link cannot keep a
	// promise, and tolerance the part of the rate, in percent, that it may lack.
	pressedFor = 2
	tolerance  = 5
)

// errNoChange: somebody else has ended or changed the flow meanwhile.
var errNoChange = errors.New("nothing to be done")

// review moves the flows whose path has broken, and ends those whose hosts have gone
// elsewhere. New places are chosen one after the other, those first that came first;
// the rules are then written at the same time.
func (s *Service) review(ctx context.Context) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxMoves)
	for _, f := range s.all() {
		if ctx.Err() != nil {
			break
		}
		if s.movedAway(f) {
			s.start(func() { s.end(f, "a host has moved") })
			continue
		}
		why := s.broken(f, time.Now())
		if why == "" {
			continue
		}
		f.changing.Lock()
		if why = s.broken(f, time.Now()); why == "" { // moved meanwhile
			f.changing.Unlock()
			continue
		}
		old, p, err := s.choosePath(f)
		if err != nil {
			f.changing.Unlock()
			if !errors.Is(err, errNoChange) {
				s.start(func() { s.end(f, why+", and there is no other way") })
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			s.restore(f, old)
			f.changing.Unlock()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer f.changing.Unlock()
			s.move(ctx, f, old, p, why)
		})
	}
	wg.Wait()
}

// movedAway says whether one of the flow's hosts stands elsewhere now.
func (s *Service) movedAway(f *flow) bool {
	at := func(h header) network.PortRef {
		host, known := s.fabric.HostByMAC(h.EthSrc, h.VLAN)
		if !known {
			return network.PortRef{}
		}
		return host.At
	}
	from, to := at(f.header), at(f.header.reverse())
	return !from.IsZero() && from != f.from || !to.IsZero() && to != f.to
}

// broken says why the flow's path does not work, or nothing.
func (s *Service) broken(f *flow, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	why, certain := s.missing(f.path)
	switch {
	case why == "":
		f.whole, f.broken = true, time.Time{}
		return ""
	case f.whole && certain:
		return why
	case f.broken.IsZero():
		f.broken = now
	}
	patience := grace
	if !f.whole {
		patience = startGrace
	}
	if now.Sub(f.broken) < patience {
		return ""
	}
	return why
}

// missing finds the first link of a path that is not there. It is certain if both its
// switches are connected, or a port says that it is down.
func (s *Service) missing(path network.Path) (why string, certain bool) {
	t := s.fabric.Topology()
	for i := range len(path.Hops) - 1 {
		a, b := path.Hops[i], path.Hops[i+1]
		from, to := network.PortRef{Switch: a.Switch, Port: a.Out}, network.PortRef{Switch: b.Switch, Port: b.In}
		if l, ok := t.LinkFrom(from); ok && l.To == to {
			continue
		}
		hasA, hasB := t.Has(a.Switch), t.Has(b.Switch)
		certain := hasA && hasB || hasA && !s.fabric.PortUp(from) || hasB && !s.fabric.PortUp(to)
		return fmt.Sprintf("the link from %v to %v is down", from, to), certain
	}
	return "", true
}

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
		s.metrics.moved(time.Since(begin))
	}
	s.log.Info("a flow has been moved", "flow", f.header, "because", why, "state", p.state, "took", time.Since(begin))
	s.publish("flow-moved", map[string]any{"cause": why, "took": time.Since(begin).Seconds(), "flow": s.recordOf(f)})
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
		s.book.Restore(reserve.Promise{Key: f.promise(), Shares: s.known(shares(p.path, f.rate, f.reverse))})
		return
	}
	s.book.Restore(yielding(f, p.path))
}

// relieve moves flows away from links that cannot keep what was promised there,
// because of traffic that nobody holds back. Of one link one flow is moved at a
// time, the youngest first: what that gives is known after the next readings.
func (s *Service) relieve(ctx context.Context) {
	relieved := map[network.PortRef]bool{}
	for _, f := range slices.Backward(s.all()) {
		at, free, readings := s.pressed(f)
		if readings < pressedFor || relieved[at] {
			continue
		}
		why := fmt.Sprintf("the link from %v has %d bit/s left for it", at, free)
		if s.upgrade(ctx, f, why) {
			relieved[at] = true
			continue
		}
		if readings == pressedFor && s.recordOf(f).State == StateAccepted {
			s.publish("flow-pressed", map[string]any{"flow": s.recordOf(f), "reason": why + ", and no other path has enough"})
		}
	}
}

// pressed finds the link that cannot keep what the flow was promised, and for how many
// readings in a row there has been one.
func (s *Service) pressed(f *flow) (at network.PortRef, free uint64, readings int) {
	yes := false
	s.mu.Lock()
	path, accepted := f.path, f.state == StateAccepted
	s.mu.Unlock()
	if !accepted {
		return at, 0, 0
	}
	for _, share := range shares(path, f.rate, f.reverse) {
		if s.fabric.IsEdge(share.Link) {
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
		f.pressed = 0
		return at, 0, 0
	}
	f.pressed++
	return at, free, f.pressed
}

// retry accepts flows for which there was no room when they came. It takes half of the
// time until the next reading at most.
func (s *Service) retry(ctx context.Context) {
	begin := time.Now()
	for _, f := range s.all() {
		if ctx.Err() != nil || time.Since(begin) > s.interval/2 {
			return
		}
		if r := s.recordOf(f); r.State == StateBestEffort {
			s.upgrade(ctx, f, "there is room for it now")
		}
	}
}

// upgrade gives a flow a path with enough available, if there is one.
func (s *Service) upgrade(ctx context.Context, f *flow, why string) bool {
	f.changing.Lock()
	defer f.changing.Unlock()
	old, err := s.present(f)
	if err != nil {
		return false
	}
	path, err := s.accept(f)
	if err != nil || old.state == StateAccepted && slices.Equal(path.Hops, old.path.Hops) {
		return false
	}
	s.move(ctx, f, old, placement{path: path, state: StateAccepted}, why)
	return true
}

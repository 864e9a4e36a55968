package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
)

const (
	// grace is how long a switch of a path may be without a connection to the
	// controller before it is taken for dead: it may have lost that alone. startGrace
	// is the same after a start, when all have to come back.
	grace      = 3 * time.Second
	startGrace = 15 * time.Second
	// maxAtOnce is how many flows, or links, are changed at once. A change is mostly
	// waiting for the answers of a few switches, and others are idle meanwhile.
	maxAtOnce = 64
)

// each calls f for every item, for maxAtOnce at once, and returns when all calls have.
func each[T any](items []T, f func(T)) { tasks.Each(items, maxAtOnce, f) }

// review moves the flows whose path has broken, and ends those whose hosts have gone
// elsewhere. New places are chosen one after the other, those first that came first;
// the rules are then written at the same time. A flow that is being changed already is
// waited for beside the others.
func (s *Service) review(ctx context.Context) {
	s.askAtBorders(ctx)
	jobs := tasks.NewCrew(maxAtOnce)
	for _, f := range s.all() {
		switch {
		case ctx.Err() != nil:
		case !f.roams() && s.movedAway(f):
			jobs.Do(func() { s.end(f, "a host has moved") })
		case f.roams() && s.left(f):
			jobs.Do(func() { s.end(f, "its host has left") })
		case s.broken(f, time.Now()) == "":
		case s.isClosed(f):
			jobs.Do(func() { s.end(f, "its connection was closed") })
		case f.changing.TryLock():
			jobs.Do(s.repair(ctx, f))
		default:
			jobs.Do(func() {
				f.changing.Lock()
				s.repair(ctx, f)()
			})
		}
	}
	jobs.Wait()
}

// repair chooses a place for a flow whose path has broken. What is left to be done is
// returned. f.changing is locked, and open again when that has been done.
func (s *Service) repair(ctx context.Context, f *flow) func() {
	why := s.broken(f, time.Now())
	if why == "" { // moved meanwhile
		return f.changing.Unlock
	}
	old, p, err := s.choosePath(f)
	switch {
	case err == nil:
		return func() {
			defer f.changing.Unlock()
			s.move(ctx, f, old, p, why)
		}
	case errors.Is(err, errNoChange):
		return f.changing.Unlock
	}
	return func() {
		f.changing.Unlock()
		s.end(f, why+", and there is no other way")
	}
}

// movedAway says whether one of the flow's hosts stands elsewhere now.
func (s *Service) movedAway(f *flow) bool {
	at := func(h header) network.PortRef {
		host, known := s.net.HostByMAC(h.EthSrc, h.VLAN)
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
	if f.roams() {
		return s.strayed(f)
	}
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
	t := s.net.Topology()
	for i := range len(path.Hops) - 1 {
		a, b := path.Hops[i], path.Hops[i+1]
		from, to := network.PortRef{Switch: a.Switch, Port: a.Out}, network.PortRef{Switch: b.Switch, Port: b.In}
		if l, ok := t.LinkFrom(from); ok && l.To == to {
			continue
		}
		hasA, hasB := t.Has(a.Switch), t.Has(b.Switch)
		certain := hasA && hasB || hasA && s.portDown(from) || hasB && s.portDown(to)
		return fmt.Sprintf("the link from %v to %v is down", from, to), certain
	}
	return "", true
}

func (s *Service) portDown(at network.PortRef) bool {
	up, _ := s.net.PortUp(at)
	return !up
}

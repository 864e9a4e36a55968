package subflow

import (
	"context"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/qos/way"
)

// Subflows take what nobody has promised, and no more: what they carry counts as free for
// promises, and on links where something is promised that no queue enforces they pass the
// guard's meter.

// Directions of a subflow.
const (
	there = iota
	back
	directions
)

// yields names what a subflow carries in one direction in the book.
func (f *subflow) yields(direction int) reserve.Key {
	return reserve.Key{Owner: Owner, ID: f.id + [directions]string{"", "/back"}[direction]}
}

// links are those that a path leaves switches by, in one direction.
func links(hops []network.Hop, direction int) (all []reserve.Link) {
	for _, at := range way.Ports(hops) {
		forth := slices.ContainsFunc(hops, func(h network.Hop) bool { return at == network.PortRef{Switch: h.Switch, Port: h.Out} })
		if forth == (direction == there) {
			all = append(all, at)
		}
	}
	return all
}

// yield enters a subflow on a path into the book, as one that gives way to promises.
func (c *choice) yield(f *subflow, hops []network.Hop) {
	for direction := range directions {
		p := reserve.Promise{Key: f.yields(direction), Yields: true}
		for _, at := range links(hops, direction) {
			p.Shares = append(p.Shares, reserve.Share{Link: at})
		}
		c.loads.book.Restore(p)
	}
}

// unyield takes it out.
func (c *choice) unyield(f *subflow) {
	for direction := range directions {
		c.loads.book.Release(f.yields(direction))
	}
}

// promised returns the links of a path on which something is promised that no queue enforces, or
// on which a flow waits for a promise: what subflows leave there is known only if they pass a
// meter.
func (c *placer) promised(hops []network.Hop) []reserve.Link {
	return slices.DeleteFunc(way.Ports(hops), func(at reserve.Link) bool { return c.Book.Open(at) == 0 && !c.Book.Waiting(at) })
}

// held are those of them that have a meter: a subflow has to pass it. A switch may be late with one, or take none.
func (c *placer) held(hops []network.Hop) []reserve.Link {
	return slices.DeleteFunc(c.promised(hops), func(at reserve.Link) bool { return c.Guard.Meter(at) == 0 })
}

// meter tells the meter of a port, if it is among those of links that have to be passed.
func (c *placer) meter(held []reserve.Link) func(network.PortRef) uint32 {
	return func(at network.PortRef) uint32 {
		if !slices.Contains(held, at) {
			return 0
		}
		return c.Guard.Meter(at)
	}
}

// holdBack has subflows pass meters where something has been promised, and no more where
// nothing is.
func (s *Service) holdBack(ctx context.Context) {
	lacking := map[reserve.Link][]*subflow{}
	flows := s.flows.all()
	for _, f := range flows {
		for _, at := range s.placer.promised(f.path()) {
			if s.Guard.Meter(at) == 0 {
				lacking[at] = append(lacking[at], f)
			}
		}
	}
	hold := func(f *subflow) { s.placer.hold(ctx, f) }
	each(flows, hold)
	// A switch that does not answer holds up its own links alone.
	each(slices.Collect(maps.Keys(lacking)), func(at reserve.Link) {
		bounded, cancel := context.WithTimeout(ctx, placeFor)
		defer cancel()
		if s.Guard.Ensure(bounded, []reserve.Link{at}); s.Guard.Meter(at) != 0 {
			each(lacking[at], hold)
		}
	})
}

// hold writes a subflow's rules anew if it has to pass other meters now.
func (c *placer) hold(ctx context.Context, f *subflow) {
	if hops, held := f.where(); hops == nil || ctx.Err() != nil || slices.Equal(held, c.held(hops)) {
		return
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	hops, now := f.where() // it may have been held meanwhile
	held := c.held(hops)
	if hops == nil || slices.Equal(now, held) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, placeFor)
	defer cancel()
	if err := c.install(ctx, f, hops, held, true); err != nil {
		c.failures.Warn(c.Log, "a subflow is not held to what promises leave, until the next reading of counters", "subflow", f.Header, "error", err)
		return
	}
	f.enter(hops, held)
	c.save(f)
}

// heldBack are the links on which subflows pass meters.
func (s *Service) heldBack() (all []reserve.Link) {
	for _, f := range s.flows.all() {
		if _, held := f.where(); held != nil {
			all = append(all, held...)
		}
	}
	return all
}

package subflow

import (
	"context"
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

// held are the links of a path on which a subflow has to pass a meter now.
func (c *placer) held(hops []network.Hop) []reserve.Link {
	return slices.DeleteFunc(way.Ports(hops), func(at reserve.Link) bool { return c.Book.Open(at) == 0 })
}

// meter makes the meters of links, and tells that of a port.
func (c *placer) meter(ctx context.Context, held []reserve.Link) func(network.PortRef) uint32 {
	c.Guard.Ensure(ctx, held)
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
	each(s.flows.all(), func(f *subflow) {
		if hops, held := f.where(); hops != nil && ctx.Err() == nil && !slices.Equal(held, s.placer.held(hops)) {
			s.placer.hold(ctx, f)
		}
	})
}

// hold writes a subflow's rules anew with the meters that it has to pass now.
func (c *placer) hold(ctx context.Context, f *subflow) {
	f.changing.Lock()
	defer f.changing.Unlock()
	hops := f.path()
	if hops == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, placeFor)
	defer cancel()
	held := c.held(hops)
	if err := c.install(ctx, f, hops, held, true); err != nil {
		c.Log.Warn("a subflow is not held to what promises leave, until the next reading of counters", "subflow", f.Header, "error", err)
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

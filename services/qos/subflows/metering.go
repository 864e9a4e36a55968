package subflows

import (
	"context"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// Subflows use only bandwidth that is not promised: their traffic counts as available for promises.
// On links where a promise is not enforced by a queue, they pass the guard's meter.

// yieldKey returns the key of a subflow's entry in the book of promises, for one direction.
func (f *subflow) yieldKey(direction int) reserve.Key {
	return reserve.Key{Owner: Owner, ID: f.id + [directions]string{"", "/back"}[direction]}
}

// links returns the links that packets take along a path in one direction, each as the port by
// which it leaves a switch.
func links(hops []network.Hop, direction int) (all []reserve.Link) {
	for _, at := range flowpath.LinkPorts(hops) {
		forth := slices.ContainsFunc(hops, func(h network.Hop) bool { return at == network.PortRef{Switch: h.Switch, Port: h.Out} })
		if forth == (direction == forward) {
			all = append(all, at)
		}
	}
	return all
}

// bookYielding enters a subflow on a path into the book of promises as yielding, that is, as
// traffic whose bandwidth is available for promises.
func (c *chooser) bookYielding(f *subflow, hops []network.Hop) {
	for direction := range directions {
		p := reserve.Promise{Key: f.yieldKey(direction), Yields: true}
		for _, at := range links(hops, direction) {
			p.Shares = append(p.Shares, reserve.Share{Link: at})
		}
		c.loads.book.Restore(p)
	}
}

// releaseYielding removes a subflow's entries from the book.
func (c *chooser) releaseYielding(f *subflow) {
	for direction := range directions {
		c.loads.book.Release(f.yieldKey(direction))
	}
}

// promisedLinks returns the links of a path on which a promise is not enforced by a queue, or on
// which a flow waits for a promise. There, subflows have to pass a meter, because otherwise it is
// not known how much they leave.
func (c *placer) promisedLinks(hops []network.Hop) []reserve.Link {
	return slices.DeleteFunc(flowpath.LinkPorts(hops), func(at reserve.Link) bool { return c.Book.Unenforced(at) == 0 && !c.Book.Waiting(at) })
}

// meteredLinks returns those of a path's promised links that have a meter. Subflows have to pass
// these meters. A switch may be late with a meter, or refuse it.
func (c *placer) meteredLinks(hops []network.Hop) []reserve.Link {
	return slices.DeleteFunc(c.promisedLinks(hops), func(at reserve.Link) bool { return c.Guard.Meter(at) == 0 })
}

// meter returns a function that returns the meter of a port if held contains the port, and
// otherwise zero.
func (c *placer) meter(held []reserve.Link) func(network.PortRef) uint32 {
	return func(at network.PortRef) uint32 {
		if !slices.Contains(held, at) {
			return 0
		}
		return c.Guard.Meter(at)
	}
}

// updateAllMeters makes subflows pass meters on links where something has been promised, and stops
// that where nothing is promised any more.
func (s *Service) updateAllMeters(ctx context.Context) {
	lacking := map[reserve.Link][]*subflow{}
	flows := s.flows.all()
	for _, f := range flows {
		for _, at := range s.placer.promisedLinks(f.path()) {
			if s.Guard.Meter(at) == 0 {
				lacking[at] = append(lacking[at], f)
			}
		}
	}
	hold := func(f *subflow) { s.placer.updateMeters(ctx, f) }
	each(flows, hold)
	// A switch that does not answer delays only its own links.
	each(slices.Collect(maps.Keys(lacking)), func(at reserve.Link) {
		bounded, cancel := context.WithTimeout(ctx, placeTimeout)
		defer cancel()
		if s.Guard.Ensure(bounded, []reserve.Link{at}); s.Guard.Meter(at) != 0 {
			each(lacking[at], hold)
		}
	})
}

// updateMeters rewrites a subflow's rules if it has to pass other meters now.
func (c *placer) updateMeters(ctx context.Context, f *subflow) {
	if hops, held := f.pathAndMeters(); hops == nil || ctx.Err() != nil || slices.Equal(held, c.meteredLinks(hops)) {
		return
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	hops, now := f.pathAndMeters() // another call may have updated the subflow meanwhile
	held := c.meteredLinks(hops)
	if hops == nil || slices.Equal(now, held) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	if err := c.install(ctx, f, hops, held, true); err != nil {
		c.warnLimit.Warn(c.Log, "a subflow is not held to what promises leave, until the next reading of counters", "subflow", f.Header, "error", err)
		return
	}
	f.setPath(hops, held)
	c.save(f)
}

// meteredLinks returns the links on which subflows pass meters.
func (s *Service) meteredLinks() (all []reserve.Link) {
	for _, f := range s.flows.all() {
		if _, held := f.pathAndMeters(); held != nil {
			all = append(all, held...)
		}
	}
	return all
}

package classes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// BookOwner is the owner of this service's promises (reserved bandwidth) in the book of promises.
const BookOwner = "latency"

// planner finds routes for classes, and enters the promises on these routes into the book.
type planner struct {
	Options
	classes  *table
	baseline baseline
}

// rates holds the guaranteed and the maximum rate of a class at one port, in bit/s.
type rates struct{ min, max uint64 }

// ratesAt returns the rates of a class at a port of the given capacity. It applies the defaults of
// the dissertation (section 4.3.1): the guaranteed rate is a quota of the link's capacity, and the
// maximum rate all of it.
func (p *planner) ratesAt(c *Class, capacity uint64) rates {
	r := rates{c.MinRate, c.MaxRate}
	if r.min == 0 {
		r.min = max(minQueueRate, uint64(p.Quota*float64(capacity)))
	}
	if r.max == 0 || r.max > capacity {
		r.max = capacity
	}
	return rates{min(r.min, max(r.max, c.MinRate)), r.max}
}

// currentRates returns the rates that a class has at a port at present. The guaranteed rate is
// minQueueRate while nothing is promised to the class there. The lock is held.
func (p *planner) currentRates(e *entry, at place, capacity uint64) rates {
	r := p.ratesAt(&e.class, capacity)
	if x := e.carriage.ports[at]; e.suspended || x != nil && x.short != "" {
		r.min = minQueueRate
	}
	return r
}

// shares returns the shares of a class's promise at the given ports. The traffic of each share is
// counted by the class's queue.
func (p *planner) shares(e *entry, ports ...place) []reserve.Share {
	out := make([]reserve.Share, len(ports))
	for i, at := range ports {
		capacity := p.Network.Capacity(at)
		out[i] = reserve.Share{Link: at, Rate: p.ratesAt(&e.class, capacity).min, Reserved: reservedRate(capacity), Counter: reserve.Counter{Switch: at.Switch, Queue: e.queue, Port: at.Port}}
	}
	return out
}

// maxSearches bounds how often the search for routes is repeated because another class was promised
// the bandwidth of a link in between.
const maxSearches = 16

// choose finds a route for each flow and enters the guaranteed rate on all of them into the book of
// promises. If that is impossible, the error says what the best route lacks.
func (p *planner) choose(ctx context.Context, e *entry) ([]Route, error) {
	c := &e.class
	all, err := p.locateAll(ctx, c)
	if err != nil {
		return nil, err
	}
	promise := reserve.Promise{Key: bookKey(c.Name), Enforced: true, Replaces: p.Critical.Within(c.matches())}
	t := p.baseline.topology(p.Network.Topology())
	for range maxSearches {
		routes, enough, err := p.search(t, e, all, promise)
		if err != nil {
			return nil, err
		}
		promise.Shares = p.shares(e, portsOf(routes)...)
		err = p.Book.Admit(promise)
		var short *reserve.Shortage
		if !errors.As(err, &short) {
			return routes, err
		}
		if _, inner := t.LinkFrom(short.Link); enough && inner { // no route avoids the link to a host
			continue
		}
		why := err.Error()
		if short.Capacity > 0 {
			why = fmt.Sprintf("hop %v, port %d: %d bit/s asked, %d of %d are left", short.Link.Switch, short.Link.Port, short.Asked, short.Available, short.Capacity)
		}
		return nil, &Refusal{"min_rate", short.Asked, why}
	}
	return nil, fmt.Errorf("the network's links were promised to others %d times while routes for class %s were searched", maxSearches, c.Name)
}

// search finds a route for each flow. enough reports whether the book has the guaranteed
// rate available on each link between switches.
func (p *planner) search(t *topology.Topology, e *entry, all []endpoints, promise reserve.Promise) (routes []Route, enough bool, err error) {
	lacks := func(l topology.Link) string {
		promise.Shares = p.shares(e, l.From)
		if short := p.Book.Short(promise); short != nil {
			return short.Error()
		}
		return ""
	}
	routes, enough = []Route{}, true // without routes, a class is admitted if other services forward all its flows
	for i, x := range all {
		if x.virtual {
			continue
		}
		r, fits, err := findRoute(t, &e.class, i, x, lacks)
		if err != nil {
			return nil, false, err
		}
		routes, enough = append(routes, r), enough && fits
	}
	return routes, enough, nil
}

// lastSeen returns where an end was last seen.
func (p *planner) lastSeen(e End) (topology.Host, bool) {
	if e.IP.IsValid() {
		return p.Network.HostByIP(e.IP)
	}
	return p.Network.HostByMAC(e.MAC, e.VLAN)
}

// locate finds where an end of a flow is, and asks the network for it if necessary. what names the
// end in errors.
func (p *planner) locate(ctx context.Context, e End, what string, flow int) (h topology.Host, err error) {
	if e.IP.IsValid() {
		h, err = p.Network.ResolveHost(ctx, e.IP)
	} else if known, ok := p.lastSeen(e); ok {
		h = known
	} else {
		err = network.ErrUnknownHost
	}
	if err != nil {
		return h, refused(flow, e.String(), "the %s %v is not found in the network: %v", what, e, err)
	}
	return h, nil
}

// locateAll finds where the flows of a class begin and end.
func (p *planner) locateAll(ctx context.Context, c *Class) ([]endpoints, error) {
	p.baseline.update(p.Network.Topology(), time.Now())
	all := make([]endpoints, len(c.Flows))
	for i, f := range c.Flows {
		hops, moves := p.mobilePath(&f)
		if moves {
			all[i].path = hops
			continue
		}
		if end, v, virtual := p.virtualEnd(&f); virtual {
			if c.Latency > 0 {
				return nil, &Refusal{"latency", c.Latency.String(), fmt.Sprintf("flows[%d]: %v is a virtual address of the service %s, which forwards its packets: no latency can be promised", i, end, v.Service)}
			}
			all[i].virtual = true
			continue
		}
		var err error
		if all[i].dst, err = p.locate(ctx, f.Dst, "destination", i); err != nil {
			return nil, err
		}
		if all[i].anySource = !f.Src.IsValid(); all[i].anySource {
			continue
		}
		if all[i].src, err = p.locate(ctx, f.Src, "source", i); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// mobilePath returns the path of a flow of which one end is a mobile host: the path between
// the border that its packets pass and the host's place, on which the host's own rules
// forward them. There is nothing to choose, so the class has its queues on that path. It
// returns false for a flow of which no end is mobile, or both are.
func (p *planner) mobilePath(f *Flow) ([]topology.Hop, bool) {
	src, from := p.Network.Anchored(f.Src.IP)
	dst, to := p.Network.Anchored(f.Dst.IP)
	if from {
		return kit.Reversed(src.Path), !to && len(src.Path) > 0
	}
	return dst.Path, to && len(dst.Path) > 0
}

// virtualEnd returns the end of a flow that is a virtual address, if there is one.
func (p *planner) virtualEnd(f *Flow) (netip.Addr, network.Virtual, bool) {
	for _, end := range []netip.Addr{f.Dst.IP, f.Src.IP} {
		if v, virtual := p.Network.Virtual(end); virtual {
			return end, v, true
		}
	}
	return netip.Addr{}, network.Virtual{}, false
}

// virtualNotes returns notes on those flows of a class that other services forward.
func (p *planner) virtualNotes(c *Class) (notes []string) {
	for i := range c.Flows {
		if end, v, virtual := p.virtualEnd(&c.Flows[i]); virtual {
			notes = append(notes, fmt.Sprintf("flows[%d]: %v is a virtual address of the service %s, which forwards its packets: they have the queue where that service carries them for the class, at the ports under carried", i, end, v.Service))
		}
	}
	return notes
}

// intact reports whether the routes of a class still exist. The lock is held.
func (p *planner) intact(e *entry) bool {
	t := p.Network.Topology()
	routes := make([]*Route, len(e.class.Flows))
	for i := range e.routes {
		routes[e.routes[i].Flow] = &e.routes[i]
	}
	for i, r := range routes {
		if !p.isIntact(t, &e.class.Flows[i], r) {
			return false
		}
	}
	return true
}

// isIntact reports whether the route of a flow still exists. r is nil for a flow that another
// service forwards; such a flow is intact while its address belongs to no host.
func (p *planner) isIntact(t *topology.Topology, f *Flow, r *Route) bool {
	if _, _, virtual := p.virtualEnd(f); virtual {
		return r == nil
	}
	dst, known := p.lastSeen(f.Dst)
	if r == nil {
		return !known
	}
	if hops, moves := p.mobilePath(f); moves {
		return slices.Equal(hops, r.Hops)
	}
	first, last := r.Hops[0], r.Hops[len(r.Hops)-1]
	if src, known := p.lastSeen(f.Src); known && !r.Tree && src.At != portRef(first.Switch, first.In) {
		return false
	}
	if !known {
		if dst.At = portRef(last.Switch, last.Out); r.Tree {
			return true // the present destination is not known
		}
	}
	return r.isIntact(t, dst.At)
}

// restore enters the promise of a class into the book again. A default rate is a share of a port's
// capacity. If a capacity is not known yet, the class is marked as unbooked, and restore is called
// again later.
func (p *planner) restore(e *entry) {
	p.classes.mu.Lock()
	defer p.classes.mu.Unlock()
	if e.suspended {
		p.Book.Release(bookKey(e.class.Name))
		return
	}
	ports := portsOf(e.routes)
	p.Book.Restore(reserve.Promise{Key: bookKey(e.class.Name), Enforced: true, Shares: p.shares(e, ports...)})
	e.unbooked = e.class.MinRate == 0 && slices.ContainsFunc(ports, func(at place) bool { return p.Network.Capacity(at) == 0 })
}

// overbooked reports whether the guaranteed rate of a class no longer fits on its routes.
func (p *planner) overbooked(e *entry) bool { return p.Book.Overbooked(bookKey(e.class.Name)) != nil }

// suspendRate withdraws the guaranteed rate of a class that could not be moved, if that rate does
// not fit on its routes. Otherwise the queues would guarantee more than a link has, and other
// classes would not get their rates. The queues of the class stay, with the least rate. e.work is
// locked.
func (p *planner) suspendRate(e *entry) {
	if !p.overbooked(e) {
		return
	}
	p.classes.mu.Lock()
	e.suspended = true
	e.leaving = append(e.leaving, portsOf(e.routes)...) // so that their queues are updated
	p.classes.mu.Unlock()
	p.restore(e)
}

func carriedKey(name string) reserve.Key {
	return reserve.Key{Owner: BookOwner, ID: name + " (carried)"}
}

// carriedPromise returns the promise of the guaranteed rate at the ports where other services carry
// packets of the class, under their own headers, and which are not on the class's own routes.
func (p *planner) carriedPromise(e *entry) reserve.Promise {
	p.classes.mu.Lock()
	defer p.classes.mu.Unlock()
	own := portsOf(e.routes)
	ports := slices.DeleteFunc(e.carriage.portList(), func(at place) bool { return slices.Contains(own, at) })
	return reserve.Promise{Key: carriedKey(e.class.Name), Enforced: true, Shares: p.shares(e, ports...)}
}

// promiseCarried enters the promise that carriedPromise returns into the book. At ports where the
// rate does not fit, it records the reason.
func (p *planner) promiseCarried(e *entry) {
	promise := p.carriedPromise(e)
	short := map[place]string{}
	for len(promise.Shares) > 0 {
		var lack *reserve.Shortage
		if err := p.Book.Admit(promise); !errors.As(err, &lack) {
			break
		}
		short[lack.Link] = fmt.Sprintf("nothing is guaranteed there: %v", lack)
		promise.Shares = slices.DeleteFunc(promise.Shares, func(x reserve.Share) bool { return x.Link == lack.Link })
	}
	if len(promise.Shares) == 0 {
		p.Book.Release(promise.Key)
	}
	p.classes.mu.Lock()
	defer p.classes.mu.Unlock()
	for at, x := range e.carriage.ports {
		x.short = short[at]
	}
}

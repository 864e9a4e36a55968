package latency

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/qos/reserve"
)

// BookOwner is the owner of this service's promises in the book.
const BookOwner = "latency"

func bookKey(name string) reserve.Key { return reserve.Key{Owner: BookOwner, ID: name} }

// planner finds classes their ways, and enters into the book what they are promised there.
type planner struct {
	Options
	classes  *table
	baseline baseline
}

// rates are what a class has at one port.
type rates struct{ min, max uint64 }

// ratesAt applies the defaults of the dissertation (section 4.3.1): the guaranteed
// rate is a quota of the link's capacity, the greatest all of it.
func (p *planner) ratesAt(c *Class, capacity uint64) rates {
	r := rates{c.MinRate, c.MaxRate}
	if r.min == 0 {
		r.min = max(leastRate, uint64(p.Quota*float64(capacity)))
	}
	if r.max == 0 || r.max > capacity {
		r.max = capacity
	}
	return rates{min(r.min, max(r.max, c.MinRate)), r.max}
}

// ratesOf are what a class has at a port as things stand. The lock is held.
func (p *planner) ratesOf(e *entry, at place, capacity uint64) rates {
	r := p.ratesAt(&e.class, capacity)
	if x := e.carriage.ports[at]; e.yields || x != nil && x.short != "" {
		r.min = leastRate
	}
	return r
}

// shares returns what a class is to have at ports. Its queue counts its traffic.
func (p *planner) shares(e *entry, ports ...place) []reserve.Share {
	out := make([]reserve.Share, len(ports))
	for i, at := range ports {
		capacity := p.Network.Capacity(at)
		out[i] = reserve.Share{Link: at, Rate: p.ratesAt(&e.class, capacity).min, Kept: kept(capacity), Counter: reserve.Counter{Switch: at.Switch, Queue: e.queue, Port: at.Port}}
	}
	return out
}

// maxSearches bounds how often ways are searched anew because somebody else was promised
// a link of one in between.
const maxSearches = 16

// choose finds a way for each flow and has the book promise the guaranteed rate on all of
// them. If that cannot be, the error says what a way lacks that is the best without it.
func (p *planner) choose(ctx context.Context, e *entry) ([]Route, error) {
	c := &e.class
	all, err := p.locateAll(ctx, c)
	if err != nil {
		return nil, err
	}
	promise := reserve.Promise{Key: bookKey(c.Name), Enforced: true, Over: p.Critical.Within(c.matches())}
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
		if _, inner := t.LinkFrom(short.Link); enough && inner { // no way avoids the link to a host
			continue
		}
		why := err.Error()
		if short.Capacity > 0 {
			why = fmt.Sprintf("hop %v, port %d: %d bit/s asked, %d of %d are left", short.Link.Switch, short.Link.Port, short.Asked, short.Available, short.Capacity)
		}
		return nil, &Refusal{"min_rate", short.Asked, why}
	}
	return nil, fmt.Errorf("the network's links were promised to others %d times while ways for class %s were searched", maxSearches, c.Name)
}

// search finds a way for each flow. enough says that the book has the guaranteed rate left
// on each link between switches.
func (p *planner) search(t *topology.Topology, e *entry, all []ends, promise reserve.Promise) (routes []Route, enough bool, err error) {
	lacks := func(l topology.Link) string {
		promise.Shares = p.shares(e, l.From)
		if short := p.Book.Short(promise); short != nil {
			return short.Error()
		}
		return ""
	}
	routes, enough = []Route{}, true // it is admitted without any if services lead all its flows
	for i, x := range all {
		if x.virtual {
			continue
		}
		r, fits, err := way(t, &e.class, i, x, lacks)
		if err != nil {
			return nil, false, err
		}
		routes, enough = append(routes, r), enough && fits
	}
	return routes, enough, nil
}

// known is where an end was seen last.
func (p *planner) known(e End) (topology.Host, bool) {
	if e.IP.IsValid() {
		return p.Network.HostByIP(e.IP)
	}
	return p.Network.HostByMAC(e.MAC, e.VLAN)
}

// locate finds where an end of a flow stands, by asking for it if need be.
func (p *planner) locate(ctx context.Context, e End, what string, flow int) (h topology.Host, err error) {
	if e.IP.IsValid() {
		h, err = p.Network.ResolveHost(ctx, e.IP)
	} else if known, ok := p.known(e); ok {
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
func (p *planner) locateAll(ctx context.Context, c *Class) ([]ends, error) {
	p.baseline.note(p.Network.Topology(), time.Now())
	all := make([]ends, len(c.Flows))
	for i, f := range c.Flows {
		hops, moves := p.movingWay(&f)
		if moves {
			all[i].led = hops
			continue
		}
		if end, v, virtual := p.virtualEnd(&f); virtual {
			if c.Latency > 0 {
				return nil, &Refusal{"latency", c.Latency.String(), fmt.Sprintf("flows[%d]: %v is a virtual address of the service %s, which leads its packets: no latency can be promised", i, end, v.Service)}
			}
			all[i].virtual = true
			continue
		}
		var err error
		if all[i].dst, err = p.locate(ctx, f.Dst, "destination", i); err != nil {
			return nil, err
		}
		if all[i].open = !f.Src.IsValid(); all[i].open {
			continue
		}
		if all[i].src, err = p.locate(ctx, f.Src, "source", i); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// movingWay is the way of a flow of which one end is a host that moves: between the border
// that its packets pass and where it is, where the host's own rules lead them. That is all
// that there is to choose, so the class has its queues there. It is false for flows of
// which no end moves, or both do.
func (p *planner) movingWay(f *Flow) ([]topology.Hop, bool) {
	src, from := p.Network.Anchored(f.Src.IP)
	dst, to := p.Network.Anchored(f.Dst.IP)
	if from {
		return reserve.Back(src.Way), !to && len(src.Way) > 0
	}
	return dst.Way, to && len(dst.Way) > 0
}

// virtualEnd returns the end of a flow that is a virtual address, if one is.
func (p *planner) virtualEnd(f *Flow) (netip.Addr, network.Virtual, bool) {
	for _, end := range []netip.Addr{f.Dst.IP, f.Src.IP} {
		if v, virtual := p.Network.Virtual(end); virtual {
			return end, v, true
		}
	}
	return netip.Addr{}, network.Virtual{}, false
}

// virtualNotes says which flows of a class others lead.
func (p *planner) virtualNotes(c *Class) (notes []string) {
	for i := range c.Flows {
		if end, v, virtual := p.virtualEnd(&c.Flows[i]); virtual {
			notes = append(notes, fmt.Sprintf("flows[%d]: %v is a virtual address of the service %s, which leads its packets: they have the queue where that service carries them for the class, at the ports under carried", i, end, v.Service))
		}
	}
	return notes
}

// intact reports whether the way of a class is still there. The lock is held.
func (p *planner) intact(e *entry) bool {
	t := p.Network.Topology()
	routes := make([]*Route, len(e.class.Flows))
	for i := range e.routes {
		routes[e.routes[i].Flow] = &e.routes[i]
	}
	for i, r := range routes {
		if !p.stands(t, &e.class.Flows[i], r) {
			return false
		}
	}
	return true
}

// stands reports whether the way of a flow is still there; nil is that of a flow which a service
// leads, as long as its address is not a host's.
func (p *planner) stands(t *topology.Topology, f *Flow, r *Route) bool {
	if _, _, virtual := p.virtualEnd(f); virtual {
		return r == nil
	}
	dst, known := p.known(f.Dst)
	if r == nil {
		return !known
	}
	if hops, moves := p.movingWay(f); moves {
		return slices.Equal(hops, r.Hops)
	}
	first, last := r.Hops[0], r.Hops[len(r.Hops)-1]
	if src, known := p.known(f.Src); known && !r.Tree && src.At != portRef(first.Switch, first.In) {
		return false
	}
	if !known {
		if dst.At = portRef(last.Switch, last.Out); r.Tree {
			return true // nobody knows where it leads now
		}
	}
	return r.stands(t, dst.At)
}

// restore enters a class into the book again. A default rate is a share of a capacity: where
// that is not known yet, the class is unbooked, and entered again later.
func (p *planner) restore(e *entry) {
	p.classes.mu.Lock()
	defer p.classes.mu.Unlock()
	if e.yields {
		p.Book.Release(bookKey(e.class.Name))
		return
	}
	ports := portsOf(e.routes)
	p.Book.Restore(reserve.Promise{Key: bookKey(e.class.Name), Enforced: true, Shares: p.shares(e, ports...)})
	e.unbooked = e.class.MinRate == 0 && slices.ContainsFunc(ports, func(at place) bool { return p.Network.Capacity(at) == 0 })
}

// overbooked says whether the guaranteed rate of a class does not fit any more where it is.
func (p *planner) overbooked(e *entry) bool { return p.Book.Overbooked(bookKey(e.class.Name)) != nil }

// yield takes from a class that could not be moved what is guaranteed to it, if that does
// not fit where it is: or queues would guarantee more than there is, and those of other
// classes would not have theirs. Its queues stay, with the least rate. e.work is locked.
func (p *planner) yield(e *entry) {
	if !p.overbooked(e) {
		return
	}
	p.classes.mu.Lock()
	e.yields = true
	e.leaving = append(e.leaving, portsOf(e.routes)...) // their queues are looked at again
	p.classes.mu.Unlock()
	p.restore(e)
}

func carriedKey(name string) reserve.Key {
	return reserve.Key{Owner: BookOwner, ID: name + " (carried)"}
}

// carried is the promise of the guaranteed rate wherever a class is carried and does not go
// by itself.
func (p *planner) carried(e *entry) reserve.Promise {
	p.classes.mu.Lock()
	defer p.classes.mu.Unlock()
	own := portsOf(e.routes)
	ports := slices.DeleteFunc(e.carriage.held(), func(at place) bool { return slices.Contains(own, at) })
	return reserve.Promise{Key: carriedKey(e.class.Name), Enforced: true, Shares: p.shares(e, ports...)}
}

// promiseCarried has the book make that promise, and notes where it cannot.
func (p *planner) promiseCarried(e *entry) {
	promise := p.carried(e)
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

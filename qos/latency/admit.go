package latency

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/qos/reserve"
)

// BookOwner is the owner of this service's promises in the book.
const BookOwner = "latency"

func bookKey(name string) reserve.Key { return reserve.Key{Owner: BookOwner, ID: name} }

// rates are what a class has at one port.
type rates struct{ min, max uint64 }

// ratesAt applies the defaults of the dissertation (section 4.3.1): the guaranteed
// rate is a quota of the link's capacity, the greatest all of it.
func (s *Service) ratesAt(c *Class, capacity uint64) rates {
	r := rates{c.MinRate, c.MaxRate}
	if r.min == 0 {
		r.min = max(leastRate, uint64(s.settings.Quota*float64(capacity)))
	}
	if r.max == 0 || r.max > capacity {
		r.max = capacity
	}
	return rates{min(r.min, max(r.max, c.MinRate)), r.max}
}

// ratesOf are what a class has at a port as things stand. The lock is held.
func (s *Service) ratesOf(e *entry, at place, capacity uint64) rates {
	r := s.ratesAt(&e.class, capacity)
	if p := e.carriage.ports[at]; e.yields || p != nil && p.short != "" {
		r.min = leastRate
	}
	return r
}

// maxSearches bounds how often ways are searched anew because somebody else was promised
// a link of one in between.
const maxSearches = 16

// choose finds a way for each flow and has the book promise the guaranteed rate on all of
// them. If that cannot be, the error says what a way lacks that is the best without it.
func (s *Service) choose(ctx context.Context, c *Class) ([]Route, error) {
	all, err := s.locateAll(ctx, c)
	if err != nil {
		return nil, err
	}
	p := reserve.Promise{Key: bookKey(c.Name), Enforced: true}
	if s.critical != nil {
		p.Over = s.critical.Within(c.matches())
	}
	t := s.baseline.topology(s.net.Topology())
	for range maxSearches {
		routes, enough, err := s.search(t, c, all, p)
		if err != nil {
			return nil, err
		}
		short, err := s.promise(c, p, routes)
		if short == nil || !enough {
			return routes, err
		}
		if _, inner := t.LinkFrom(short.Link); !inner { // that to a host: no way avoids it
			return routes, err
		}
	}
	return nil, fmt.Errorf("the network's links were promised to others %d times while ways for class %s were searched", maxSearches, c.Name)
}

// search finds a way for each flow. enough says that the book has the guaranteed rate left
// on each link between switches.
func (s *Service) search(t *topology.Topology, c *Class, all []ends, p reserve.Promise) (routes []Route, enough bool, err error) {
	enough = true
	lacks := func(l topology.Link) string {
		one := p
		one.Shares = []reserve.Share{s.share(c, l.From)}
		if short := s.book.Short(one); short != nil {
			return short.Error()
		}
		return ""
	}
	for i, e := range all {
		r, fits, err := way(t, c, i, e, lacks)
		if err != nil {
			return nil, false, err
		}
		routes, enough = append(routes, r), enough && fits
	}
	return routes, enough, nil
}

// share is what a class is to have at a port.
func (s *Service) share(c *Class, at topology.PortRef) reserve.Share {
	capacity := s.net.Capacity(at)
	return reserve.Share{Link: at, Rate: s.ratesAt(c, capacity).min, Kept: kept(capacity)}
}

// promise has the book take the guaranteed rate of a class on all its ports, or says
// where it cannot, for the program and for people.
func (s *Service) promise(c *Class, p reserve.Promise, routes []Route) (*reserve.Shortage, error) {
	for _, at := range portsOf(routes) {
		p.Shares = append(p.Shares, s.share(c, at))
	}
	err := s.book.Admit(p)
	var short *reserve.Shortage
	if !errors.As(err, &short) {
		return nil, err
	}
	why := err.Error()
	if short.Capacity > 0 {
		why = fmt.Sprintf("hop %v, port %d: %d bit/s asked, %d of %d are left", short.Link.Switch, short.Link.Port, short.Asked, short.Available, short.Capacity)
	}
	return short, &Refusal{"min_rate", short.Asked, why}
}

// marks are the DSCPs by which a userspace datapath tells the classifier a packet's
// queue: first those of the pools for experimental and local use (RFC 2474, section
// 6, but for LE of RFC 8622), then those of pool 1 that are not assigned.
var marks = func() []uint8 {
	var out []uint8
	for _, low := range []uint8{3, 1} {
		for high := range uint8(16) {
			if m := high<<2 | low; m != 1 {
				out = append(out, m)
			}
		}
	}
	return append(out, 2, 4, 6, 42, 50, 52, 54, 58, 60, 62)
}()

// freeMark finds a mark that no other class has on any of the ports: the one that the
// class has, if it can. The lock is held.
func (s *Service) freeMark(e *entry, ports []topology.PortRef) (uint8, error) {
	taken := map[uint8]topology.PortRef{}
	for _, other := range s.classes {
		if other == e || other.routes == nil {
			continue
		}
		for _, p := range other.held() {
			if slices.Contains(ports, p) {
				taken[other.mark] = p
			}
		}
	}
	for _, other := range s.classes { // whoever they are: what they mean must not be changed
		if dscp := other.carriage.dscp; dscp != 0 && len(ports) > 0 {
			taken[dscp] = ports[0]
		}
	}
	if _, is := taken[e.mark]; !is && e.mark != 0 {
		return e.mark, nil
	}
	for _, m := range marks {
		if _, is := taken[m]; !is {
			return m, nil
		}
	}
	return 0, &Refusal{"flows", e.class.Name, fmt.Sprintf("port %v has %d classes already, as many as a userspace datapath can tell apart", taken[marks[0]], len(marks))}
}

// ownDSCP is the DSCP of a class's packets before they are marked, as a userspace
// datapath has to know it.
func ownDSCP(c *Class) (uint8, error) {
	var own *uint8
	for i, f := range c.Flows {
		dscp := uint8(0)
		if f.DSCP != nil {
			dscp = *f.DSCP
		}
		if own != nil && *own != dscp {
			return 0, &Refusal{fmt.Sprintf("flows[%d].ip_dscp", i), dscp, fmt.Sprintf("%d like the flows before it: on userspace datapaths all flows of a class have one DSCP; make two classes", *own)}
		}
		own = &dscp
	}
	return *own, nil
}

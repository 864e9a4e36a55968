package route

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// phase is how far a switch has come in an update.
type phase uint8

const (
	before phase = iota // it has the old rules
	during              // it has the old rules, or the new ones as well
	after               // it has the new rules, and of the old ones those that will be deleted
)

// site is a switch in an update.
type site struct {
	sw       openflow.DatapathID
	old, now []entry
	phase    phase
}

// find looks for what a switch does with a packet that comes in by a port, from
// or to an address.
func (s *site) find(up bool, in uint32, mac openflow.MAC, written bool) *entry {
	lookup := func(in uint32, mac openflow.MAC) *entry {
		k := entry{up: up, in: in, mac: mac}
		if written {
			if e := among(s.now, &k); e != nil {
				return e
			}
		}
		return among(s.old, &k)
	}
	if up {
		return lookup(in, mac)
	}
	if mac == branchMAC {
		if e := lookup(0, mac); e != nil {
			return e
		}
	}
	if e := lookup(in, openflow.MAC{}); e != nil {
		return e
	}
	return lookup(0, openflow.MAC{})
}

func among(es []entry, k *entry) *entry {
	for i := range es {
		if es[i].samePlace(k) {
			return &es[i]
		}
	}
	return nil
}

// written reports whether the switch gets or changes a rule.
func (s *site) written() bool {
	for i := range s.now {
		if e := among(s.old, &s.now[i]); e == nil || *e != s.now[i] {
			return true
		}
	}
	return false
}

// cleared reports whether the switch loses a rule.
func (s *site) cleared() bool {
	for i := range s.old {
		if among(s.now, &s.old[i]) == nil {
			return true
		}
	}
	return false
}

// start is where packets enter.
type start struct {
	at  network.PortRef
	mac openflow.MAC
	up  bool
	// astray says that the old rules lead copies off their branch, on wires that
	// were changed: they may go on doing so.
	astray bool
	// served is what the old rules brought to its end: no state in between may
	// lose that.
	served care
}

// care says which copies of a packet may not be lost.
type care uint8

const (
	none care = iota
	firstCopy
	allCopies
)

// update is the way from one plan to another.
type update struct {
	sites  []site
	starts []start
	seen   []visited
	astray bool // of the start that is followed
}

// visited is a place that a search has been at.
type visited struct {
	at   network.PortRef
	mac  openflow.MAC
	left bool // with all that follows from it
}

func newUpdate(old, now *Plan) *update {
	u := &update{}
	top := now.top.Value()
	for _, sw := range now.order {
		u.sites = append(u.sites, site{sw: sw, now: now.at(sw), old: rewired(old.at(sw), top)})
	}
	for _, sw := range old.order {
		if u.site(sw) == nil {
			u.sites = append(u.sites, site{sw: sw, old: rewired(old.at(sw), top)})
		}
	}
	for _, p := range []*Plan{old, now} {
		for _, r := range p.want.Borders {
			u.start(start{at: r.At})
		}
		for _, pl := range p.want.Places {
			u.start(start{at: pl.At, mac: pl.MAC, up: true})
		}
	}
	return u
}

// nowhere is where a link leads that is no more.
var nowhere = network.PortRef{Switch: ^openflow.DatapathID(0), Port: openflow.PortAny}

// rewired lets rules that were made for an earlier topology lead where their ports
// lead now.
func rewired(es []entry, top *network.Topology) []entry {
	if top == nil {
		return es
	}
	for i := range es {
		e := &es[i]
		for k := range e.outs[:e.n] {
			o := &e.outs[k]
			l, ok := top.LinkFrom(network.PortRef{Switch: e.sw, Port: o.port})
			switch {
			case ok:
				o.to = l.To
			case !o.to.IsZero():
				o.to = nowhere
			}
		}
	}
	return es
}

// at lists the entries of a switch.
func (p *Plan) at(sw openflow.DatapathID) []entry {
	var out []entry
	for i := range p.entries {
		if p.entries[i].sw == sw {
			out = append(out, p.entries[i])
		}
	}
	return out
}

func (u *update) site(sw openflow.DatapathID) *site {
	for i := range u.sites {
		if u.sites[i].sw == sw {
			return &u.sites[i]
		}
	}
	return nil
}

// start adds a place where packets enter. It is called before any switch leaves
// its first phase.
func (u *update) start(s start) {
	known := slices.ContainsFunc(u.starts, func(o start) bool { return o.at == s.at && o.mac == s.mac && o.up == s.up })
	if known {
		return
	}
	if s.astray = !u.walk(s, none); s.astray && !u.walk(s, none) {
		return // what goes round already, on wires that were changed, cannot be kept from it
	}
	for s.served = allCopies; s.served > none && !u.walk(s, s.served); {
		s.served--
	}
	u.starts = append(u.starts, s)
}

// safe reports whether, whatever part of the switches that are in the middle has
// been written, no packet goes round in a circle or comes to a place twice and, if
// lossless, none is lost that the old rules brought to its end.
func (u *update) safe(lossless bool) bool {
	for _, s := range u.starts {
		c := s.served
		if !lossless {
			c = none
		}
		if !u.walk(s, c) {
			return false
		}
	}
	return true
}

func (u *update) walk(s start, c care) bool {
	u.seen, u.astray = u.seen[:0], s.astray
	return u.visit(s.at, s.mac, s.up, c)
}

// visit follows packets that come in at a port, in every state that the switches
// may be in, as far as they go. It is false when they come back to where they have
// been, when two copies come to one place, or when one of which care is to be taken
// meets a switch without a rule for it.
func (u *update) visit(at network.PortRef, mac openflow.MAC, up bool, c care) bool {
	for i := range u.seen {
		if v := &u.seen[i]; v.at == at && v.mac == mac {
			return v.left
		}
	}
	me := len(u.seen)
	u.seen = append(u.seen, visited{at: at, mac: mac})
	s := u.site(at.Switch)
	if s == nil {
		u.seen[me].left = true
		return c == none
	}
	for _, written := range []bool{false, true} {
		if written && s.phase == before || !written && s.phase == after {
			continue
		}
		if e := s.find(up, at.Port, mac, written); e == nil && c != none || e != nil && !u.pass(e, at, mac, c) {
			return false
		}
	}
	u.seen[me].left = true
	return true
}

// pass follows the copies that a rule sends.
func (u *update) pass(e *entry, at network.PortRef, mac openflow.MAC, c care) bool {
	if !e.up && mac == branchMAC && e.mac != mac && !u.astray {
		return false // a copy has strayed from its branch
	}
	for i, o := range e.outs[:e.n] {
		of := c
		if i > 0 && c != allCopies {
			of = none
		}
		switch {
		case e.silent(at.Port, i):
			if of != none && i == 0 {
				return false
			}
		case !o.to.IsZero() && !u.visit(o.to, o.carried(e.up, mac), e.up, of):
			return false
		}
	}
	return e.n < 2 || u.astray || !u.meet(at.Switch, mac, e)
}

// silent reports whether a switch leaves out a copy, because it would leave by the
// port that the packet came in by, and the rule is not made for that.
func (e *entry) silent(in uint32, i int) bool { return e.in == 0 && e.outs[i].port == in }

// carried is the address by which the next switch tells a packet.
func (o *out) carried(up bool, mac openflow.MAC) openflow.MAC {
	switch {
	case up:
		return openflow.MAC{}
	case o.mac.IsZero():
		return mac
	}
	return o.mac
}

// end is where a copy leaves the network, or where a search has been.
type end struct {
	at  network.PortRef
	mac openflow.MAC
}

// meet reports whether two copies that a switch makes may come to the same place.
func (u *update) meet(sw openflow.DatapathID, mac openflow.MAC, e *entry) bool {
	var ends [2][]end
	for i := range ends {
		var seen []end
		u.ends(sw, mac, &e.outs[i], &seen, &ends[i])
	}
	return slices.ContainsFunc(ends[0], func(e end) bool { return slices.Contains(ends[1], e) })
}

// ends lists where a copy may leave, in every state that the switches may be in.
func (u *update) ends(sw openflow.DatapathID, mac openflow.MAC, o *out, seen, found *[]end) {
	mac = o.carried(false, mac)
	if o.to.IsZero() {
		*found = append(*found, end{network.PortRef{Switch: sw, Port: o.port}, mac})
		return
	}
	s, here := u.site(o.to.Switch), end{o.to, mac}
	if s == nil || slices.Contains(*seen, here) {
		return
	}
	*seen = append(*seen, here)
	for _, written := range []bool{false, true} {
		if written && s.phase == before || !written && s.phase == after {
			continue
		}
		if e := s.find(false, o.to.Port, mac, written); e != nil {
			for i := range e.outs[:e.n] {
				if !e.silent(o.to.Port, i) {
					u.ends(o.to.Switch, mac, &e.outs[i], seen, found)
				}
			}
		}
	}
}

package route

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// phase is how far a switch has come in an update.
type phase uint8

const (
	before phase = iota // the switch has the old rules
	during              // the switch has the old rules, or the new ones as well
	after               // the switch has the new rules, and the old rules that will be deleted later
)

// site is a switch in an update.
type site struct {
	sw       openflow.DatapathID
	old, now []entry
	phase    phase
}

// find returns the entry by which the switch handles a packet that comes in by a port, from or to
// an address, or nil. written selects the new rules.
func (s *site) find(up bool, in uint32, mac openflow.MAC, written bool) *entry {
	lookup := func(in uint32, mac openflow.MAC) *entry {
		k := entry{up: up, in: in, mac: mac}
		if written {
			if e := findEntry(s.now, &k); e != nil {
				return e
			}
		}
		return findEntry(s.old, &k)
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

// findEntry returns the entry with the same match as k, or nil.
func findEntry(es []entry, k *entry) *entry {
	for i := range es {
		if es[i].sameMatch(k) {
			return &es[i]
		}
	}
	return nil
}

// written reports whether the switch gets or changes a rule.
func (s *site) written() bool {
	for i := range s.now {
		if e := findEntry(s.old, &s.now[i]); e == nil || *e != s.now[i] {
			return true
		}
	}
	return false
}

// cleared reports whether the switch loses a rule.
func (s *site) cleared() bool {
	for i := range s.old {
		if findEntry(s.now, &s.old[i]) == nil {
			return true
		}
	}
	return false
}

// source is a place where packets enter.
type source struct {
	at  network.PortRef
	mac openflow.MAC
	up  bool
	// astray reports whether the old rules lead copies off their branch, because links have
	// changed. If so, safe does not require that copies stay on the branch.
	astray bool
	// served is the set of copies that the old rules delivered. No state in between may lose these.
	served delivery
}

// delivery is the set of copies of a packet that must not be lost.
type delivery uint8

const (
	none delivery = iota
	firstCopy
	allCopies
)

// update is the change from one plan to another.
type update struct {
	sites   []site
	sources []source
	seen    []visited
	astray  bool // value of the source that is being followed
}

// visited is a place that a search has visited.
type visited struct {
	at   network.PortRef
	mac  openflow.MAC
	done bool // reports whether everything that follows from the place has been visited
}

// newUpdate returns the update from one plan to another, with all switches in their first phase.
func newUpdate(old, now *Plan) *update {
	u := &update{}
	top := now.top.Value()
	for _, sw := range now.order {
		u.sites = append(u.sites, site{sw: sw, now: now.at(sw), old: relinked(old.at(sw), top)})
	}
	for _, sw := range old.order {
		if u.site(sw) == nil {
			u.sites = append(u.sites, site{sw: sw, old: relinked(old.at(sw), top)})
		}
	}
	for _, p := range []*Plan{old, now} {
		for _, r := range p.want.Borders {
			u.addSource(source{at: r.At})
		}
		for _, pl := range p.want.Places {
			u.addSource(source{at: pl.At, mac: pl.MAC, up: true})
		}
	}
	return u
}

// deadEnd stands for the far end of a link that no longer exists.
var deadEnd = network.PortRef{Switch: ^openflow.DatapathID(0), Port: openflow.PortAny}

// relinked updates entries that were made for an earlier topology: the link of each output port leads
// to where it leads in the topology top.
func relinked(es []entry, top *network.Topology) []entry {
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
				o.to = deadEnd
			}
		}
	}
	return es
}

// at returns the entries of a switch.
func (p *Plan) at(sw openflow.DatapathID) []entry {
	var out []entry
	for i := range p.entries {
		if p.entries[i].sw == sw {
			out = append(out, p.entries[i])
		}
	}
	return out
}

// site returns the state of a switch, or nil.
func (u *update) site(sw openflow.DatapathID) *site {
	for i := range u.sites {
		if u.sites[i].sw == sw {
			return &u.sites[i]
		}
	}
	return nil
}

// addSource adds a place where packets enter. It is called before any switch leaves its first
// phase.
func (u *update) addSource(s source) {
	known := slices.ContainsFunc(u.sources, func(o source) bool { return o.at == s.at && o.mac == s.mac && o.up == s.up })
	if known {
		return
	}
	if s.astray = !u.walk(s, none); s.astray && !u.walk(s, none) {
		return // packets that loop already, because links have changed, cannot be protected
	}
	for s.served = allCopies; s.served > none && !u.walk(s, s.served); {
		s.served--
	}
	u.sources = append(u.sources, s)
}

// safe reports whether no packet loops or arrives at a place twice, whatever part of the switches
// in the middle phase has been written. If keep is set, it also requires that no packet is lost
// that the old rules delivered.
func (u *update) safe(keep bool) bool {
	for _, s := range u.sources {
		c := s.served
		if !keep {
			c = none
		}
		if !u.walk(s, c) {
			return false
		}
	}
	return true
}

// walk follows the packets of a source, and reports whether they are treated safely.
func (u *update) walk(s source, c delivery) bool {
	u.seen, u.astray = u.seen[:0], s.astray
	return u.visit(s.at, s.mac, s.up, c)
}

// visit follows packets that come in at a port, in every state that the switches may be in, until they
// leave the network or are dropped. It returns false if they come back to a place where they have been,
// if two copies come to one place, or if a copy that must not be lost meets a switch without a rule for
// it.
func (u *update) visit(at network.PortRef, mac openflow.MAC, up bool, c delivery) bool {
	for i := range u.seen {
		if v := &u.seen[i]; v.at == at && v.mac == mac {
			return v.done
		}
	}
	me := len(u.seen)
	u.seen = append(u.seen, visited{at: at, mac: mac})
	s := u.site(at.Switch)
	if s == nil {
		u.seen[me].done = true
		return c == none
	}
	for _, written := range []bool{false, true} {
		if written && s.phase == before || !written && s.phase == after {
			continue
		}
		if e := s.find(up, at.Port, mac, written); e == nil && c != none || e != nil && !u.follow(e, at, mac, c) {
			return false
		}
	}
	u.seen[me].done = true
	return true
}

// follow follows the copies that a rule sends.
func (u *update) follow(e *entry, at network.PortRef, mac openflow.MAC, c delivery) bool {
	if !e.up && mac == branchMAC && e.mac != mac && !u.astray {
		return false // a copy has left its branch
	}
	for i, o := range e.outs[:e.n] {
		of := c
		if i > 0 && c != allCopies {
			of = none
		}
		switch {
		case e.suppressed(at.Port, i):
			if of != none && i == 0 {
				return false
			}
		case !o.to.IsZero() && !u.visit(o.to, o.carriedMAC(e.up, mac), e.up, of):
			return false
		}
	}
	return e.n < 2 || u.astray || !u.copiesMeet(at.Switch, mac, e)
}

// suppressed reports whether a switch does not send a copy, because it would leave by its ingress
// port and the rule is not made for that.
func (e *entry) suppressed(in uint32, i int) bool { return e.in == 0 && e.outs[i].port == in }

// carriedMAC returns the address by which the next switch identifies the copy o of a packet with the
// address mac.
func (o *out) carriedMAC(up bool, mac openflow.MAC) openflow.MAC {
	switch {
	case up:
		return openflow.MAC{}
	case o.mac.IsZero():
		return mac
	}
	return o.mac
}

// end is a port at which a copy leaves the network, and the address that identifies the copy
// there. The search for such ports also keeps those that it has visited in this form.
type end struct {
	at  network.PortRef
	mac openflow.MAC
}

// copiesMeet reports whether two copies that a switch makes may come to the same place.
func (u *update) copiesMeet(sw openflow.DatapathID, mac openflow.MAC, e *entry) bool {
	var ends [2][]end
	for i := range ends {
		var seen []end
		u.ends(sw, mac, &e.outs[i], &seen, &ends[i])
	}
	return slices.ContainsFunc(ends[0], func(e end) bool { return slices.Contains(ends[1], e) })
}

// ends appends where a copy may leave the network, in every state that the switches may be in.
func (u *update) ends(sw openflow.DatapathID, mac openflow.MAC, o *out, seen, found *[]end) {
	mac = o.carriedMAC(false, mac)
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
				if !e.suppressed(o.to.Port, i) {
					u.ends(o.to.Switch, mac, &e.outs[i], seen, found)
				}
			}
		}
	}
}

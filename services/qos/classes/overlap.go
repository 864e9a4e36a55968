package classes

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/openflow"
)

// overlapOf reports whether another class takes packets of c, and describes the overlap. Wherever
// packets of both classes pass, the other class has a rule as well, because both have the same
// destination.
func overlapOf(c, other *Class) (o overlap, ok bool) {
	if other.Priority > c.Priority {
		return overlap{}, false
	}
	o = overlap{all: true, same: other.Priority == c.Priority, flow: -1}
	matches := other.matches()
	for i, f := range c.Flows {
		for _, m := range f.Matches {
			if !slices.ContainsFunc(matches, func(n openflow.Match) bool { return n.Covers(m) }) {
				o.all = false
			}
			if o.flow < 0 && slices.ContainsFunc(matches, m.Overlaps) {
				o.flow = i
			}
		}
	}
	return o, o.flow >= 0
}

// shadowedBy returns the name of a class that takes all packets of this one, or "". The lock is
// held.
func (e *entry) shadowedBy() string {
	for _, name := range slices.Sorted(maps.Keys(e.overlaps)) {
		if o := e.overlaps[name]; o.all && !o.same {
			return name
		}
	}
	return ""
}

// notes returns notes for the operator about an accepted class. The lock is held.
func (e *entry) notes() []string {
	notes := []string{}
	for _, name := range slices.Sorted(maps.Keys(e.overlaps)) {
		switch o := e.overlaps[name]; {
		case o.same:
			notes = append(notes, fmt.Sprintf("flows[%d]: the class %s of the same priority has packets of it, too: whose queue they get is each switch's choice", o.flow, name))
		case !o.all:
			notes = append(notes, fmt.Sprintf("flows[%d]: packets of it that the class %s of higher priority has, too, are in that one's queue", o.flow, name))
		}
	}
	if i := slices.IndexFunc(e.class.Flows, Flow.needsTransportHeader); i >= 0 {
		notes = append(notes, fmt.Sprintf("flows[%d]: fragments of IP packets have no ports and no ICMP type, and go without the queue: let packets fit the path's MTU, or leave those fields out", i))
	}
	return notes
}

// needsTransportHeader reports whether a flow matches headers that fragments do not have.
func (f Flow) needsTransportHeader() bool {
	for o := range f.Matches[0].Fields() {
		switch o.Field {
		case openflow.FieldTCPSrc, openflow.FieldTCPDst, openflow.FieldUDPSrc, openflow.FieldUDPDst, openflow.FieldSCTPSrc, openflow.FieldSCTPDst,
			openflow.FieldICMPv4Type, openflow.FieldICMPv4Code, openflow.FieldICMPv6Type, openflow.FieldICMPv6Code:
			return true
		}
	}
	return false
}

package latency

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/openflow"
)

// overlap says that packets of a class are another class's as well, whose rules win over
// its own, or may.
type overlap struct {
	// all says that the other class has all packets of this one; same that they are of one
	// priority, so that each switch decides by itself.
	all, same bool
	flow      int // the first flow of the class that is concerned
}

// overlapOf compares a class with another one that may have its packets. Where that has
// them it also has a rule, since it leads to the same destination.
func overlapOf(c, other *Class) (o overlap, is bool) {
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

// shadow is the class that has all packets of this one, or nothing. The lock is held.
func (e *entry) shadow() string {
	for _, name := range slices.Sorted(maps.Keys(e.overlaps)) {
		if o := e.overlaps[name]; o.all && !o.same {
			return name
		}
	}
	return ""
}

// notes are what the operator has to know of an accepted class. The lock is held.
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
	if i := slices.IndexFunc(e.class.Flows, Flow.deep); i >= 0 {
		notes = append(notes, fmt.Sprintf("flows[%d]: fragments of IP packets have no ports and no ICMP type, and go without the queue: let packets fit the path's MTU, or leave those fields out", i))
	}
	return notes
}

// deep says that a flow's packets are told by headers that fragments do not have.
func (f Flow) deep() bool {
	for o := range f.Matches[0].Fields() {
		switch o.Field {
		case openflow.FieldTCPSrc, openflow.FieldTCPDst, openflow.FieldUDPSrc, openflow.FieldUDPDst, openflow.FieldSCTPSrc, openflow.FieldSCTPDst,
			openflow.FieldICMPv4Type, openflow.FieldICMPv4Code, openflow.FieldICMPv6Type, openflow.FieldICMPv6Code:
			return true
		}
	}
	return false
}

package network

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// maxLinkMemoryAge is the time within which a lost link may return as the same link.
	maxLinkMemoryAge = 10 * time.Minute
	// maxLinkMemory is the number of lost links that are remembered.
	maxLinkMemory = 16384
)

// linkMemory remembers links that existed.
type linkMemory struct {
	tree *broadcastTree
	seen map[PortRef]seenLink
}

type seenLink struct {
	link Link
	at   time.Time // when the link was last known
}

func newLinkMemory(b *broadcastTree) linkMemory {
	return linkMemory{tree: b, seen: map[PortRef]seenLink{}}
}

// topologies returns two topologies. now has the known links, and links that are presumed to exist
// although they are not known, because a switch is disconnected or has just connected; unsettled
// reports whether there are any of these. now has no links of bypassed switches. all has the links
// of now, those of bypassed switches, and those that are lost and may return.
func (m *linkMemory) topologies(top *topology.Topology, at time.Time, bypassed func(openflow.DatapathID) bool) (now, all *topology.Topology, unsettled bool) {
	for _, l := range top.Links {
		m.seen[l.From] = seenLink{l, at}
	}
	var present, lost []Link
	for from, l := range m.seen {
		_, known := top.LinkFrom(from)
		other, ok := top.LinkFrom(l.link.To)
		switch {
		case known && !bypassed(from.Switch) && !bypassed(l.link.To.Switch):
			present = append(present, l.link)
		case known:
			lost = append(lost, l.link)
		case ok && other.To != from, at.Sub(l.at) > maxLinkMemoryAge, len(lost) >= maxLinkMemory: // or another link uses the port now
			delete(m.seen, from)
		case m.presumedUp(l.link) && !bypassed(from.Switch) && !bypassed(l.link.To.Switch):
			present = append(present, l.link)
			unsettled = true
		default:
			lost = append(lost, l.link)
		}
	}
	switches := addEnds(slices.DeleteFunc(slices.Clone(top.Switches), bypassed), present)
	now = topology.New(top.Version, switches, present)
	lost = append(lost, present...)
	return now, topology.New(top.Version, addEnds(switches, lost), lost), unsettled
}

// addEnds returns the switches and those at the ends of the links.
func addEnds(switches []openflow.DatapathID, links []Link) []openflow.DatapathID {
	out := slices.Clone(switches)
	for _, l := range links {
		out = append(out, l.From.Switch, l.To.Switch)
	}
	return out
}

// presumedUp reports whether a link that is not known is presumed to exist.
func (m *linkMemory) presumedUp(l Link) bool {
	return (m.tree.unsettled(l.From.Switch) || m.tree.unsettled(l.To.Switch)) && m.mayForward(l.From) && m.mayForward(l.To)
}

// mayForward reports whether the port is up or unknown.
func (m *linkMemory) mayForward(at PortRef) bool {
	s, up := m.tree.switches.get(at.Switch)
	if !up {
		return true
	}
	p, ok := s.Port(at.Port)
	return ok && p.Up()
}

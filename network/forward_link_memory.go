package network

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// maxLinkMemoryAge is how long a link that is gone may come back as the same one.
	maxLinkMemoryAge = 10 * time.Minute
	// maxLinkMemory is how many such links there may be.
	maxLinkMemory = 16384
)

// linkMemory remembers links that were there.
type linkMemory struct {
	tree *broadcastTree
	seen map[PortRef]seenLink
}

type seenLink struct {
	link Link
	at   time.Time // when it was last known
}

func newLinkMemory(b *broadcastTree) linkMemory {
	return linkMemory{tree: b, seen: map[PortRef]seenLink{}}
}

// topologies is the network with the links that are there although they are not known, since a
// switch is not connected, or has just been, and without switches that are left alone; all has
// those links too that are gone and may come back.
func (m *linkMemory) topologies(top *topology.Topology, at time.Time, bypassed func(openflow.DatapathID) bool) (now, all *topology.Topology, unsettled bool) {
	for _, l := range top.Links {
		m.seen[l.From] = seenLink{l, at}
	}
	var present, gone []Link
	for from, l := range m.seen {
		_, here := top.LinkFrom(from)
		other, some := top.LinkFrom(l.link.To)
		switch {
		case here && !bypassed(from.Switch) && !bypassed(l.link.To.Switch):
			present = append(present, l.link)
		case here:
			gone = append(gone, l.link)
		case some && other.To != from, at.Sub(l.at) > maxLinkMemoryAge, len(gone) >= maxLinkMemory: // or another link is there now
			delete(m.seen, from)
		case m.presumedUp(l.link) && !bypassed(from.Switch) && !bypassed(l.link.To.Switch):
			present = append(present, l.link)
			unsettled = true
		default:
			gone = append(gone, l.link)
		}
	}
	switches := addEnds(slices.DeleteFunc(slices.Clone(top.Switches), bypassed), present)
	now = topology.New(top.Version, switches, present)
	gone = append(gone, present...)
	return now, topology.New(top.Version, addEnds(switches, gone), gone), unsettled
}

// addEnds are the switches, and those at the ends of links.
func addEnds(switches []openflow.DatapathID, links []Link) []openflow.DatapathID {
	out := slices.Clone(switches)
	for _, l := range links {
		out = append(out, l.From.Switch, l.To.Switch)
	}
	return out
}

// presumedUp says whether a link that is not known is there all the same.
func (m *linkMemory) presumedUp(l Link) bool {
	return (m.tree.unsettled(l.From.Switch) || m.tree.unsettled(l.To.Switch)) && m.mayForward(l.From) && m.mayForward(l.To)
}

// mayForward says whether nothing is known against a port.
func (m *linkMemory) mayForward(at PortRef) bool {
	s, up := m.tree.switches.get(at.Switch)
	if !up {
		return true
	}
	p, some := s.Port(at.Port)
	return some && p.Up()
}

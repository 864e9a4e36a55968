package network

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// linkRemembered is how long a link that is gone may come back as the same one.
	linkRemembered = 10 * time.Minute
	// linksRemembered is how many such links there may be.
	linksRemembered = 16384
)

// linkMemory remembers links that were there.
type linkMemory struct {
	base *base
	seen map[PortRef]seenLink
}

type seenLink struct {
	link Link
	at   time.Time // when it was last known
}

func newLinkMemory(b *base) linkMemory { return linkMemory{base: b, seen: map[PortRef]seenLink{}} }

// network is the network with the links that are there although they are not known, since a
// switch is not connected, or has just been, and without switches that are left alone; all has
// those links too that are gone and may come back.
func (m *linkMemory) network(top *topology.Topology, at time.Time, alone func(openflow.DatapathID) bool) (now, all *topology.Topology, unsettled bool) {
	for _, l := range top.Links {
		m.seen[l.From] = seenLink{l, at}
	}
	var stand, gone []Link
	for from, l := range m.seen {
		_, here := top.LinkFrom(from)
		other, some := top.LinkFrom(l.link.To)
		switch {
		case here && !alone(from.Switch) && !alone(l.link.To.Switch):
			stand = append(stand, l.link)
		case here:
			gone = append(gone, l.link)
		case some && other.To != from, at.Sub(l.at) > linkRemembered, len(gone) >= linksRemembered: // or another link is there now
			delete(m.seen, from)
		case m.stands(l.link) && !alone(from.Switch) && !alone(l.link.To.Switch):
			stand = append(stand, l.link)
			unsettled = true
		default:
			gone = append(gone, l.link)
		}
	}
	switches := ends(slices.DeleteFunc(slices.Clone(top.Switches), alone), stand)
	now = topology.New(top.Version, switches, stand)
	gone = append(gone, stand...)
	return now, topology.New(top.Version, ends(switches, gone), gone), unsettled
}

// ends are the switches, and those at the ends of links.
func ends(switches []openflow.DatapathID, links []Link) []openflow.DatapathID {
	out := slices.Clone(switches)
	for _, l := range links {
		out = append(out, l.From.Switch, l.To.Switch)
	}
	return out
}

// stands says whether a link that is not known is there all the same.
func (m *linkMemory) stands(l Link) bool {
	return (m.base.unsettled(l.From.Switch) || m.base.unsettled(l.To.Switch)) && m.mayCarry(l.From) && m.mayCarry(l.To)
}

// mayCarry says whether nothing is known against a port.
func (m *linkMemory) mayCarry(at PortRef) bool {
	s, up := m.base.switches.get(at.Switch)
	if !up {
		return true
	}
	p, some := s.Port(at.Port)
	return some && p.Up()
}

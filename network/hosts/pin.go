package hosts

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Pin says whose an address is, and where that host is.
type Pin struct {
	MAC openflow.MAC
	At  topology.PortRef
}

// pins are the hosts that are pinned, by address and by MAC address. It is not changed.
type pins struct {
	hosts  map[netip.Addr]Pin
	places map[openflow.MAC]topology.PortRef
}

func newPins(hosts map[netip.Addr]Pin) *pins {
	p := &pins{maps.Clone(hosts), make(map[openflow.MAC]topology.PortRef, len(hosts))}
	for _, pin := range hosts {
		p.places[pin.MAC] = pin.At
	}
	return p
}

// allow reports whether a host may be at a port, and have an address there, if any.
func (p *pins) allow(mac openflow.MAC, addr netip.Addr, at topology.PortRef) bool {
	if place, pinned := p.places[mac]; pinned && place != at {
		return false
	}
	pin, pinned := p.hosts[addr]
	return !pinned || pin.MAC == mac
}

// SetPinned replaces the pinned hosts. What is known that contradicts them is forgotten.
func (t *Table) SetPinned(hosts map[netip.Addr]Pin) []Change {
	p := newPins(hosts)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pins.Store(p)
	var wrong []*entry
	for e := range t.places.all() {
		s := e.state.Load()
		if !p.allow(e.mac, netip.Addr{}, s.at) || slices.ContainsFunc(s.ips, func(a netip.Addr) bool { return !p.allow(e.mac, a, s.at) }) {
			wrong = append(wrong, e)
		}
	}
	return t.removeAll(wrong)
}

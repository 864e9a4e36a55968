package hosts

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Pin is the host to which an address belongs, and the port at which that host is.
type Pin struct {
	MAC openflow.MAC
	At  topology.PortRef
}

// pins holds the pinned hosts, by address and by MAC address, and the virtual addresses, which
// no host may have. It is immutable.
type pins struct {
	hosts       map[netip.Addr]Pin
	places      map[openflow.MAC]topology.PortRef
	virtual     map[netip.Addr]openflow.MAC
	virtualMACs map[openflow.MAC]struct{}
}

func newPins(hosts map[netip.Addr]Pin, virtual map[netip.Addr]openflow.MAC) *pins {
	p := &pins{
		maps.Clone(hosts), make(map[openflow.MAC]topology.PortRef, len(hosts)),
		maps.Clone(virtual), make(map[openflow.MAC]struct{}, len(virtual)),
	}
	for _, pin := range hosts {
		p.places[pin.MAC] = pin.At
	}
	for _, mac := range virtual {
		p.virtualMACs[mac] = struct{}{}
	}
	return p
}

// allow reports whether a host may be at a port and, if addr is valid, whether it may have
// that address.
func (p *pins) allow(mac openflow.MAC, addr netip.Addr, at topology.PortRef) bool {
	if place, pinned := p.places[mac]; pinned && place != at {
		return false
	}
	if _, virtual := p.virtualMACs[mac]; virtual {
		return false
	}
	if _, virtual := p.virtual[addr]; virtual {
		return false
	}
	pin, pinned := p.hosts[addr]
	return !pinned || pin.MAC == mac
}

// SetPinned replaces the pinned hosts, and removes hosts that contradict them.
func (t *Table) SetPinned(hosts map[netip.Addr]Pin) []Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pin(newPins(hosts, t.pins.Load().virtual))
}

// SetVirtual replaces the virtual addresses, each with the MAC address by which the table
// answers for it. It removes hosts that have such an address.
func (t *Table) SetVirtual(all map[netip.Addr]openflow.MAC) []Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pin(newPins(t.pins.Load().hosts, all))
}

// IsVirtual reports whether a MAC address is that of a virtual address.
func (t *Table) IsVirtual(mac openflow.MAC) bool {
	_, virtual := t.pins.Load().virtualMACs[mac]
	return virtual
}

// pin replaces the pins, and removes the hosts that contradict them. The mutex is held.
func (t *Table) pin(p *pins) []Change {
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

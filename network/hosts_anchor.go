package network

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Anchor is what stays as it is of a host that moves, whose packets a service leads: who
// has something to do with them wherever the host is, does it there.
type Anchor struct {
	// MAC is the address by which everybody but its edge switch knows the host.
	MAC openflow.MAC
	// Borders are the ports by which the host's traffic with others comes in and leaves,
	// wherever it is: all of it passes the switch of one of them. The service's rules lead
	// what is addressed to the host from each of these switches to where it is.
	Borders []PortRef
	// Place is where it is now, by the address that it uses there. A zero address there is
	// the same as MAC.
	Place Pin
	// Way leads from the border by which what it sends leaves to where it is.
	Way []Hop
}

// Border is the first of the ports that is at a switch.
func (a *Anchor) Border(d openflow.DatapathID) (PortRef, bool) {
	for _, at := range a.Borders {
		if at.Switch == d {
			return at, true
		}
	}
	return PortRef{}, false
}

// Moving says which hosts may move: those with addresses of the prefixes. All that they send
// and get passes the switches of the borders.
type Moving struct {
	Prefixes []netip.Prefix
	Borders  []PortRef
}

// Anchors is a service that leads hosts that move, and keeps them: what others say of them
// is not believed, and nothing of them is in doubt. Its methods must not wait.
type Anchors interface {
	Anchored(netip.Addr) (Anchor, bool)
	Moving() Moving
	// Led is what its rules do with a packet that came in at a port; nothing for one with
	// an address that belongs elsewhere. It is false for packets that concern no such host.
	Led(at PortRef, h *packet.Headers) (out []openflow.Action, led bool)
	// Keeps tells the place and the MAC address in use of a host that is looked for by its
	// MAC address or, if that is zero, by its IP address.
	Keeps(openflow.MAC, netip.Addr) (Pin, bool)
}

// anchors is the service that leads hosts, if there is one.
type anchors struct{ service Anchors }

func (a *anchors) lookup(mac openflow.MAC, addr netip.Addr) (Pin, bool) {
	if a.service == nil {
		return Pin{}, false
	}
	return a.service.Keeps(mac, addr)
}

// forwardMoving is what becomes of a packet of a host that moves which came up before it got to the
// rules that lead the host, because a service wanted to see it first.
func (a *anchors) forwardMoving(p *PacketIn) (out []openflow.Action, ok bool) {
	l := p.Switch.layout
	if a.service == nil || !l.Tables() || p.Table >= l.Number(rule.TableRoute) {
		return nil, false
	}
	return a.service.Led(PortRef{Switch: p.Switch.dpid, Port: p.InPort}, &p.Headers)
}

// AnchorHosts has a service lead and keep hosts. It must not be called once Run has been.
func (n *Network) AnchorHosts(a Anchors) {
	if n.running.Load() {
		panic("network: AnchorHosts after Run")
	}
	n.anchors.service = a
}

// Moving says which hosts may move.
func (n *Network) Moving() Moving {
	if n.anchors.service == nil {
		return Moving{}
	}
	return n.anchors.service.Moving()
}

// Anchored tells where a host is anchored that a service leads; false for all others.
func (n *Network) Anchored(a netip.Addr) (Anchor, bool) {
	if n.anchors.service == nil {
		return Anchor{}, false
	}
	return n.anchors.service.Anchored(a.Unmap())
}

// PlaceHost says where a host is that a service looks after, and which address it has,
// so that it need not be seen there first.
func (n *Network) PlaceHost(mac openflow.MAC, addr netip.Addr, at PortRef) {
	n.dispatcher.hostChanges(n.hosts.Place(mac, addr, at, time.Now()))
}

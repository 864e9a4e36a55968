package network

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Anchor describes a mobile host whose packets a service forwards. MAC and Borders stay the same
// when the host moves, so that other services can apply their rules at the borders.
type Anchor struct {
	// MAC is the MAC address by which all switches but the host's edge switch know the host.
	MAC openflow.MAC
	// Borders are the ports by which the host's traffic with others enters and leaves, wherever
	// the host is: all of it passes the switch of one of them. The service's rules forward packets
	// for the host from each of these switches to its place.
	Borders []PortRef
	// Place is the host's present place, and the MAC address it uses there. A zero address means
	// MAC.
	Place Pin
	// Path is the path from the border by which the host's packets leave to its present place.
	Path []Hop
}

// Border returns the first of the Borders that is a port of the switch, or false if none is.
func (a *Anchor) Border(d openflow.DatapathID) (PortRef, bool) {
	for _, at := range a.Borders {
		if at.Switch == d {
			return at, true
		}
	}
	return PortRef{}, false
}

// Moving describes the hosts that may move: those with addresses in the prefixes. All their
// traffic passes the switches of the borders.
type Moving struct {
	Prefixes []netip.Prefix
	Borders  []PortRef
}

// Anchors is implemented by a service that forwards the packets of mobile hosts and manages their
// places: claims that packets make about these hosts are refused, and never pending. Its methods
// must not wait.
type Anchors interface {
	Anchored(netip.Addr) (Anchor, bool)
	Moving() Moving
	// ActionsFor returns the actions that the service's rules have for a packet that arrived at a
	// port. led reports whether these rules decide about the packet. If led is true and there are no
	// actions, the rules drop the packet.
	ActionsFor(at PortRef, h *packet.Headers) (out []openflow.Action, led bool)
	// PlaceOf returns the place and the present MAC address of a host, which is found by its MAC
	// address or, if that is zero, by its IP address.
	PlaceOf(openflow.MAC, netip.Addr) (Pin, bool)
}

// anchors holds the service that forwards the packets of mobile hosts, if there is one.
type anchors struct{ service Anchors }

// lookup returns the place of a host that the service manages.
func (a *anchors) lookup(mac openflow.MAC, addr netip.Addr) (Pin, bool) {
	if a.service == nil {
		return Pin{}, false
	}
	return a.service.PlaceOf(mac, addr)
}

// forwardMoving returns the actions for a packet of a mobile host that a rule of another service
// has sent to the controller before the host's own rules could match it. ok is false if the packet
// is not such a packet.
func (a *anchors) forwardMoving(p *PacketIn) (out []openflow.Action, ok bool) {
	l := p.Switch.layout
	if a.service == nil || !l.Tables() || p.Table >= l.Number(rule.TableRoute) {
		return nil, false
	}
	return a.service.ActionsFor(PortRef{Switch: p.Switch.dpid, Port: p.InPort}, &p.Headers)
}

// AnchorHosts sets the service that forwards the packets of mobile hosts. It must not be called
// after Run.
func (n *Network) AnchorHosts(a Anchors) {
	if n.running.Load() {
		panic("network: AnchorHosts after Run")
	}
	n.anchors.service = a
}

// Moving returns which hosts may move.
func (n *Network) Moving() Moving {
	if n.anchors.service == nil {
		return Moving{}
	}
	return n.anchors.service.Moving()
}

// Anchored returns the anchor of a mobile host, or false for all other hosts.
func (n *Network) Anchored(a netip.Addr) (Anchor, bool) {
	if n.anchors.service == nil {
		return Anchor{}, false
	}
	return n.anchors.service.Anchored(a.Unmap())
}

// PlaceHost records the port and address of a host that a service manages. The network then treats
// the host as present there without waiting for a packet from it.
func (n *Network) PlaceHost(mac openflow.MAC, addr netip.Addr, at PortRef) {
	n.dispatcher.hostChanges(n.hosts.Place(mac, addr, at, time.Now()))
}

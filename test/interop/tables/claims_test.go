package tables

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// copyOut is a packet as it leaves: by which port, in which queue.
type copyOut struct {
	port  uint32
	queue uint32
	h     packet.Headers
}

// claim is what somebody has a packet do at a switch.
type claim struct {
	of   kind
	outs []copyOut
}

// claims are those of everybody on a packet that comes in by a port, from what has been
// declared.
func (w *world) claims(at network.PortRef, h *packet.Headers) []claim {
	var all []claim
	add := func(of kind, ok bool, outs ...copyOut) {
		if ok {
			all = append(all, claim{of, outs})
		}
	}
	up := copyOut{port: openflow.PortController, h: *h}
	if c := w.channel; c != nil {
		outs, ok := c.leads(at, h)
		add(channeled, ok, outs...)
		add(unannounced, h.Has(packet.IPv4) && h.Dst == media.Addr())
	}
	add(probe, h.EthType == packet.TypeLLDP && h.EthDst == probes, up)
	if c := w.sos; c != nil {
		out, ok := c.segment(at, h)
		add(session, ok, out)
		add(firstPacket, c.opens(at, h), up)
		add(stray, w.strays(at, h), up)
		out, ok = w.steered(at, h)
		add(agents, ok, out)
	}
	if d := w.device; d != nil {
		out, ok := w.leads(at, h)
		add(device, ok, out)
		add(elsewhere, h.Has(packet.IPv4) && given(h), up)
		add(control, controlled(h), up)
	}
	for i := range w.classes {
		out, ok := w.classes[i].leads(at, h)
		add(classified+kind(w.classes[i].priority), ok, out)
	}
	if c := w.critical; c != nil {
		outs, ok := c.placed(at, h)
		add(placed, ok, outs...)
		add(criticalPacket, c.asks(at, h), up)
	}
	if s := w.subflows; s != nil {
		outs, ok := s.placed(at, h)
		add(joined, ok, outs...)
		add(joining, s.joins(at, h), up)
	}
	if w.withNames {
		out, ok := w.byLabel(at, h)
		add(byLabel, ok, out)
		add(noLabel, labeled(h))
	}
	all = append(all, claim{ordinary, w.forward(at, h)})
	return all
}

// opens says whether a packet opens a connection of the whitelist. Switches that do not see
// TCP's flags ask about all segments.
func (c *carrying) opens(at network.PortRef, h *packet.Headers) bool {
	if !h.Has(packet.IPv4|packet.TCP) || c.flags[at.Switch] && h.TCPFlags&(packet.SYN|packet.ACK) != packet.SYN {
		return false
	}
	for _, e := range c.whitelist {
		for _, r := range e.Ports {
			if e.Clients[0].Contains(h.Src) && e.Servers[0].Contains(h.Dst) && h.DstPort >= r.First && h.DstPort <= r.Last {
				return true
			}
		}
	}
	return false
}

// strays says whether a packet comes from a session port of an agent.
func (w *world) strays(at network.PortRef, h *packet.Headers) bool {
	for _, a := range []*party{&w.parties[agentX], &w.parties[agentY]} {
		if at == a.at && h.Has(packet.IPv4|packet.TCP) && h.Src == a.ip && h.SrcPort >= firstOfPort && h.SrcPort <= lastOfPort {
			return true
		}
	}
	return false
}

// steered is the way of what one agent sends the other.
func (w *world) steered(at network.PortRef, h *packet.Headers) (copyOut, bool) {
	c := w.sos
	if !c.session || !h.Has(packet.IPv4) || h.Proto != packet.ProtoTCP { // fragments go with the others
		return copyOut{}, false
	}
	from, to, way := &w.parties[agentX], &w.parties[agentY], c.way
	if h.Src == to.ip {
		from, to, way = to, from, turned(way)
	}
	if h.Src != from.ip || h.Dst != to.ip {
		return copyOut{}, false
	}
	last := len(way) - 1
	for i, hop := range way {
		if hop.Switch != at.Switch || hop.In != at.Port {
			continue
		}
		if i == 0 && from.vlan != 0 && h.VLANID != from.vlan {
			continue
		}
		out := *h
		if i == last && from.vlan != to.vlan {
			if from.vlan != 0 && i > 0 && h.VLANID == 0 {
				continue // it has lost the tag that it came with
			}
			tag(&out, to.vlan)
		}
		return copyOut{port: hop.Out, h: out}, true
	}
	return copyOut{}, false
}

func turned(way []network.Hop) []network.Hop {
	back := make([]network.Hop, len(way))
	for i, h := range way {
		back[len(way)-1-i] = network.Hop{Switch: h.Switch, In: h.Out, Out: h.In}
	}
	return back
}

// leads is what the rules of the mobile device do with a packet from it or to it.
func (w *world) leads(at network.PortRef, h *packet.Headers) (copyOut, bool) {
	d, here := w.device, &w.parties[phone]
	if !h.Has(packet.IPv4) {
		return copyOut{}, false
	}
	out := *h
	if port, leads := d.down[at.Switch]; leads && h.Dst == here.ip {
		if at.Switch == here.at.Switch && !d.mac.IsZero() {
			out.EthDst = d.mac // that is also for who stands at the same port
			return copyOut{port: port, h: out}, true
		}
		return copyOut{port: unless(port, at.Port), h: out}, true
	}
	for i, hop := range d.up {
		if h.Src != here.ip || hop.Switch != at.Switch || hop.In != at.Port {
			continue
		}
		if i == 0 && !d.mac.IsZero() {
			if h.EthSrc != d.mac {
				continue
			}
			out.EthSrc = here.mac
		}
		return copyOut{port: hop.Out, h: out}, true
	}
	return copyOut{}, false
}

// unless is the port, or nothing if a packet came in by it.
func unless(port, in uint32) uint32 {
	if port == in {
		return nowhere
	}
	return port
}

// nowhere is the port of packets that do not leave.
const nowhere = 0

// given says whether an IPv4 packet has an address that the pool gives out.
func given(h *packet.Headers) bool {
	return h.Src.Compare(pool.First) >= 0 && h.Src.Compare(pool.Last) <= 0
}

// controlled says whether a packet is the controller's: DHCP, and ARP about devices.
func controlled(h *packet.Headers) bool {
	about := pool.Prefix.Contains(h.Dst) || pool.Prefix.Contains(h.Src) && h.ARPOp == packet.ARPReply
	dhcp := h.SrcPort == 68 && h.DstPort == 67 || h.SrcPort == 67 && h.DstPort == 68
	return h.Has(packet.ARP) && about || h.Has(packet.IPv4|packet.UDP) && dhcp
}

// leads is the way of the class's packets, and their queue, at one switch.
func (c *class) leads(at network.PortRef, h *packet.Headers) (copyOut, bool) {
	for i, hop := range c.way.Hops {
		d := c.description
		if i > 0 {
			d.in = network.PortRef{}
		}
		if hop.Switch != at.Switch || !d.means(at.Port, h) {
			continue
		}
		out := copyOut{port: hop.Out, queue: c.queue, h: *h}
		if hop.Out == at.Port && hop.In != hop.Out {
			out.port = nowhere
		}
		if own := c.own(); c.userspace[at.Switch] && h.DSCP != own {
			out.queue = 0
		}
		return out, true
	}
	return copyOut{}, false
}

// own is the DSCP of the class's packets.
func (c *class) own() uint8 {
	if c.dscp != nil {
		return *c.dscp
	}
	return 0
}

// placed is the way of a critical flow's packets. Of what opens and closes its connection the
// controller gets a copy.
func (c *criticalTraffic) placed(at network.PortRef, h *packet.Headers) ([]copyOut, bool) {
	return follow(c.flows, c.sees, at, h)
}

// follow is the way of packets of flows that have been placed, with copies where switches see
// TCP's flags and are to give some.
func follow(flows []placedFlow, copies map[openflow.DatapathID]bool, at network.PortRef, h *packet.Headers) ([]copyOut, bool) {
	for _, f := range flows {
		there, last := f.first, len(f.path)-1
		back := answer(there)
		for i, hop := range f.path {
			ends := uint16(0)
			switch {
			case hop.Switch != at.Switch:
				continue
			case hop.In == at.Port && sameFlow(&there, h):
				if i == 0 {
					ends = packet.SYN | packet.FIN | packet.RST
				}
			case hop.Out == at.Port && sameFlow(&back, h):
				hop.Out = hop.In
				if i == last {
					ends = packet.FIN | packet.RST
				}
			default:
				continue
			}
			outs := []copyOut{{port: hop.Out, h: *h}}
			if copies[at.Switch] && h.TCPFlags&ends != 0 {
				outs = append(outs, copyOut{port: openflow.PortController, h: *h})
			}
			return outs, true
		}
	}
	return nil, false
}

// sameFlow says whether two packets are of one direction of one connection, between the same
// interfaces.
func sameFlow(a, b *packet.Headers) bool {
	const transport = packet.IPv4 | packet.TCP | packet.UDP
	return a.Layers&transport == b.Layers&transport && a.EthSrc == b.EthSrc && a.EthDst == b.EthDst && a.VLANID == b.VLANID &&
		a.Source() == b.Source() && a.Destination() == b.Destination()
}

// asks says whether a packet is critical.
func (c *criticalTraffic) asks(at network.PortRef, h *packet.Headers) bool {
	return slices.ContainsFunc(c.definitions, func(d description) bool { return d.means(at.Port, h) })
}

// forward is what default forwarding does with a packet.
func (w *world) forward(at network.PortRef, h *packet.Headers) []copyOut {
	up := []copyOut{{port: openflow.PortController, h: *h}}
	tells := h.Has(packet.ARP) || h.Has(packet.ICMPv6) && h.ICMPType == packet.NeighborAdvertisement
	if tells && w.IsEdge(at) {
		return up
	}
	for _, f := range w.ordinary.flows {
		for _, hop := range f.Path.Hops {
			if hop.Switch == at.Switch && hop.In == at.Port && f.Src == h.EthSrc && f.Dst == h.EthDst && f.VLAN == h.VLANID {
				return []copyOut{{port: hop.Out, h: *h}}
			}
		}
	}
	if !h.EthDst.IsMulticast() || w.IsEdge(at) {
		return up
	}
	if !w.onTree(at) {
		return nil
	}
	var outs []copyOut
	for _, port := range append(slices.Clone(w.top.TreePorts(at.Switch)), w.edges[at.Switch]...) {
		if port != at.Port {
			outs = append(outs, copyOut{port: port, h: *h})
		}
	}
	return outs
}

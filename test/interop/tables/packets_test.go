package tables

import (
	"math/rand/v2"
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// traffic makes random packets: mostly those that the declarations of a world are about, at
// ports where they belong, then such with something changed, and such from elsewhere.
type traffic struct {
	*rand.Rand
	w    *world
	from []func() (network.PortRef, packet.Headers) // what it is made of
}

func newTraffic(w *world, seed uint64) traffic {
	r := traffic{Rand: rand.New(rand.NewPCG(seed, 0)), w: w}
	r.from = append(r.from, r.anything, r.odd)
	if w.sos != nil {
		r.from = append(r.from, r.ofSession, r.ofSession)
	}
	if w.device != nil {
		r.from = append(r.from, r.ofDevice)
	}
	if w.channel != nil {
		r.from = append(r.from, r.ofChannel)
	}
	if w.critical != nil && len(w.critical.flows) > 0 {
		r.from = append(r.from, func() (network.PortRef, packet.Headers) { return r.ofPlaced(w.critical.flows) })
	}
	if w.subflows != nil {
		r.from = append(r.from, r.joining, r.joining)
		if len(w.subflows.flows) > 0 {
			r.from = append(r.from, func() (network.PortRef, packet.Headers) { return r.ofPlaced(w.subflows.flows) })
		}
	}
	if w.withNames {
		r.from = append(r.from, r.ofNames, r.ofNames)
	}
	if w.critical != nil || len(w.classes) > 0 {
		r.from = append(r.from, r.described)
	}
	return r
}

// next is a packet and the port by which it comes in.
func (r traffic) next() (network.PortRef, packet.Headers) {
	at, h := r.from[r.IntN(len(r.from))]()
	for r.IntN(3) == 0 {
		r.vary(&h)
	}
	if r.IntN(5) == 0 {
		at = r.anyPort()
	}
	return at, h
}

// anything is a segment from one party to another.
func (r traffic) anything() (network.PortRef, packet.Headers) {
	from, to := r.IntN(numParties), r.IntN(numParties)
	h := r.w.between(from, to)
	h.SrcPort, h.DstPort = r.port(), r.port()
	return r.w.parties[from].at, h
}

// described is a packet of a class, or a critical one.
func (r traffic) described() (network.PortRef, packet.Headers) {
	var all []description
	for i := range r.w.classes {
		all = append(all, r.w.classes[i].description)
	}
	if c := r.w.critical; c != nil {
		all = append(all, c.definitions...)
	}
	d := pick(r, all...)
	if d.frames {
		return r.ofNames()
	}
	at, h := r.anything()
	for i := range r.w.parties {
		if p := &r.w.parties[i]; p.ip == d.src {
			at, h.EthSrc, h.Src = p.at, p.mac, p.ip
			tag(&h, p.vlan)
		} else if p.ip == d.dst {
			h.EthDst, h.Dst = p.mac, p.ip
		}
	}
	if d.proto == packet.ProtoUDP {
		datagram(&h)
	}
	if d.last > 0 {
		h.DstPort = d.first + uint16(r.IntN(int(d.last-d.first)+1))
	}
	if d.dscp != nil {
		h.DSCP = *d.dscp
	}
	if d.vlan != nil {
		tag(&h, *d.vlan)
	}
	return at, h
}

// datagram makes a segment one of UDP.
func datagram(h *packet.Headers) {
	h.Layers = h.Layers&^packet.TCP | packet.UDP
	h.Proto, h.TCPFlags = packet.ProtoUDP, 0
}

func pick[T any](r traffic, of ...T) T { return of[r.IntN(len(of))] }

func (r traffic) port() uint16 {
	return pick(r, uint16(serverPort), serverPort, serverPort-2, serverPort+3, 443, 5000, 6000, clientPort, clientPort, xPort, yPort, xDataPort, uint16(r.Uint32()))
}

// anyPort is a port of some switch, of a link too.
func (r traffic) anyPort() network.PortRef {
	d := pick(r, r.w.top.Switches...)
	n := len(r.w.edges[d]) + len(r.w.top.LinksFrom(d))
	return network.PortRef{Switch: d, Port: uint32(1 + r.IntN(n))}
}

// ofSession is a segment of the session that agents carry, of one of its parts and
// directions.
func (r traffic) ofSession() (at network.PortRef, h packet.Headers) {
	c := r.w.sos
	x, y := agentX, agentY
	switch r.IntN(5) {
	case 0: // the client's
		at, h = r.w.parties[c.client].at, r.w.between(c.client, c.server)
	case 1: // the server's
		at, h = r.w.parties[c.server].at, r.w.between(c.server, c.client)
		h.SrcPort, h.DstPort = serverPort, clientPort
	case 2: // of agent x to the client
		at, h = r.w.parties[x].at, r.w.between(x, c.client)
		h.SrcPort, h.DstPort = xPort, clientPort
	case 3: // of agent y to the server
		at, h = r.w.parties[y].at, r.w.between(y, c.server)
		h.SrcPort, h.DstPort = yPort, serverPort
	case 4: // between the agents
		if r.IntN(2) == 0 {
			x, y = y, x
		}
		at, h = r.w.parties[x].at, r.w.between(x, y)
		h.SrcPort, h.DstPort = pick(r, uint16(xDataPort), 7000), pick(r, uint16(xDataPort), 7000, serverPort)
	}
	h.TCPFlags = pick(r, uint16(packet.SYN), packet.ACK, packet.ACK, packet.ACK|packet.FIN, packet.RST, packet.SYN|packet.ACK)
	if r.IntN(4) == 0 {
		at = r.anyPort()
	}
	return at, h
}

// ofDevice is from the mobile device, to it, or from somebody who uses its address.
func (r traffic) ofDevice() (at network.PortRef, h packet.Headers) {
	d := r.w.device
	peer := pick(r, client, server, other, agentX, agentY, router)
	switch r.IntN(3) {
	case 0:
		at, h = r.w.parties[phone].at, r.w.between(phone, peer)
		if !d.mac.IsZero() {
			h.EthSrc = d.mac
		}
	case 1:
		at, h = pick(r, d.roots...), r.w.between(peer, phone)
	case 2:
		at, h = r.w.parties[peer].at, r.w.between(phone, peer)
		h.Src = netip.AddrFrom4([4]byte{10, 9, 0, byte(r.IntN(256))})
	}
	h.SrcPort, h.DstPort = r.port(), r.port()
	return at, h
}

// ofPlaced is of a flow that has been placed.
func (r traffic) ofPlaced(flows []placedFlow) (network.PortRef, packet.Headers) {
	f := pick(r, flows...)
	if f.first.Has(packet.TCP) {
		f.first.TCPFlags = pick(r, uint16(packet.SYN), packet.ACK, packet.FIN|packet.ACK, packet.RST)
	}
	hop := pick(r, f.path...)
	if r.IntN(2) == 0 {
		return network.PortRef{Switch: hop.Switch, Port: hop.In}, f.first
	}
	return network.PortRef{Switch: hop.Switch, Port: hop.Out}, answer(f.first)
}

// answer is the same packet the other way.
func answer(h packet.Headers) packet.Headers {
	h.EthSrc, h.EthDst, h.Src, h.Dst, h.SrcPort, h.DstPort = h.EthDst, h.EthSrc, h.Dst, h.Src, h.DstPort, h.SrcPort
	return h
}

// odd is ARP, DHCP, IPv6, a group's, a fragment or a probe.
func (r traffic) odd() (network.PortRef, packet.Headers) {
	at, h := r.anything()
	bare := packet.Headers{Layers: h.Layers & (packet.Ethernet | packet.VLAN), EthSrc: h.EthSrc, EthDst: h.EthDst, VLANTags: h.VLANTags, VLANID: h.VLANID}
	switch r.IntN(7) {
	case 0:
		bare.Layers |= packet.ARP
		bare.EthType, bare.ARPOp = packet.TypeARP, pick(r, uint16(packet.ARPRequest), packet.ARPReply)
		bare.Src, bare.Dst, bare.ARPSHA = h.Src, pick(r, h.Dst, pool.Gateway), h.EthSrc
		return at, bare
	case 1, 2:
		datagram(&h)
		h.SrcPort, h.DstPort = pick(r, uint16(67), 68), pick(r, uint16(67), 68)
		return at, h
	case 3:
		h.EthDst = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		return at, h
	case 4: // a fragment behind the first
		h.Layers &^= packet.TCP
		h.FragOffset, h.SrcPort, h.DstPort, h.TCPFlags = 1480, 0, 0, 0
		return at, h
	case 5:
		bare.Layers |= packet.IPv6 | packet.ICMPv6
		bare.EthType, bare.Proto = packet.TypeIPv6, packet.ProtoICMPv6
		bare.ICMPType = pick(r, uint8(packet.NeighborAdvertisement), packet.NeighborSolicitation, 128)
		bare.Src, bare.Dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
		return at, bare
	default:
		bare.Layers |= packet.LLDP
		bare.EthType, bare.EthDst = packet.TypeLLDP, pick(r, probes, h.EthDst)
		return at, bare
	}
}

// probes is where probes of links are sent.
var probes = openflow.MAC{0x01, 0x80, 0xc2, 0, 0, 0x0e}

// vary changes a thing about a packet.
func (r traffic) vary(h *packet.Headers) {
	switch r.IntN(10) {
	case 0:
		tag(h, pick(r, uint16(0), 7, 9))
	case 1:
		if h.Has(packet.TCP) {
			h.TCPFlags = uint16(r.IntN(0x200))
		}
	case 2:
		if h.IsIP() {
			h.DSCP = pick(r, someDSCPs...)
		}
	case 3:
		if h.IsIP() {
			h.ECN = uint8(r.IntN(4))
		}
	case 4:
		h.EthSrc = pick(r, r.w.parties[:]...).mac
	case 5:
		h.EthDst = pick(r, r.w.parties[:]...).mac
	case 6:
		if h.Has(packet.IPv4) {
			h.Src = pick(r, r.w.parties[:]...).ip
		}
	case 7:
		if h.Has(packet.IPv4) {
			h.Dst = pick(r, r.w.parties[:]...).ip
		}
	case 8:
		if h.Has(packet.TCP) || h.Has(packet.UDP) {
			h.DstPort = r.port()
		}
	case 9:
		if h.Has(packet.TCP) {
			datagram(h)
		}
	}
}

// packetOf is the packet as a flow table sees it.
func packetOf(in uint32, h *packet.Headers) fake.Packet {
	return fake.NewPacket(h.Fields()...).With(openflow.InPort(in))
}

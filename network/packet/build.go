package packet

import (
	"net/netip"

	"github.com/sluice-net/sluice/openflow"
)

// Frame is the Ethernet header of a frame to be built. VLAN is the VLAN tag's
// identifier, zero for an untagged frame.
type Frame struct {
	Dst, Src openflow.MAC
	VLAN     uint16
	PCP      uint8
}

// Broadcast is the Ethernet broadcast address.
var Broadcast = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (f Frame) appendTo(b []byte, ethType uint16) []byte {
	b = append(b, f.Dst[:]...)
	b = append(b, f.Src[:]...)
	if f.VLAN != 0 {
		b = be.AppendUint16(b, TypeVLAN)
		b = be.AppendUint16(b, uint16(f.PCP)<<13|f.VLAN&0xfff)
	}
	return be.AppendUint16(b, ethType)
}

// ARPMessage is an ARP message for IPv4 over Ethernet.
type ARPMessage struct {
	Op        uint16
	SenderMAC openflow.MAC
	Sender    netip.Addr
	TargetMAC openflow.MAC
	Target    netip.Addr
}

// AppendARP appends an ARP message. Sender and Target must be IPv4 addresses.
func AppendARP(b []byte, f Frame, m ARPMessage) []byte {
	b = f.appendTo(b, TypeARP)
	b = append(b, 0, 1, 8, 0, 6, 4)
	b = be.AppendUint16(b, m.Op)
	sender, target := m.Sender.As4(), m.Target.As4()
	b = append(b, m.SenderMAC[:]...)
	b = append(b, sender[:]...)
	b = append(b, m.TargetMAC[:]...)
	return append(b, target[:]...)
}

// AppendARPRequest appends a broadcast ARP request for target.
func AppendARPRequest(b []byte, mac openflow.MAC, sender, target netip.Addr, vlan uint16) []byte {
	return AppendARP(b, Frame{Dst: Broadcast, Src: mac, VLAN: vlan},
		ARPMessage{Op: ARPRequest, SenderMAC: mac, Sender: sender, Target: target})
}

// AppendARPReply appends the answer to the request in h: the requested address is at mac.
func AppendARPReply(b []byte, h *Headers, mac openflow.MAC) []byte {
	f := Frame{Dst: h.EthSrc, Src: mac, VLAN: h.VLANID, PCP: h.VLANPCP}
	return AppendARP(b, f, ARPMessage{Op: ARPReply, SenderMAC: mac, Sender: h.Dst, TargetMAC: h.ARPSHA, Target: h.Src})
}

// SolicitedNode returns the multicast address to which the holder of addr listens, and the
// corresponding Ethernet address.
func SolicitedNode(addr netip.Addr) (netip.Addr, openflow.MAC) {
	a := addr.As16()
	ip := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}
	return netip.AddrFrom16(ip), openflow.MAC{0x33, 0x33, 0xff, a[13], a[14], a[15]}
}

// AppendNeighborSolicitation appends a multicast solicitation for target.
func AppendNeighborSolicitation(b []byte, mac openflow.MAC, sender, target netip.Addr, vlan uint16) []byte {
	group, groupMAC := SolicitedNode(target)
	t := target.As16()
	body := append([]byte{NeighborSolicitation, 0, 0, 0, 0, 0, 0, 0}, t[:]...)
	if !sender.IsUnspecified() {
		body = append(body, 1, 1)
		body = append(body, mac[:]...)
	}
	return appendICMPv6(b, Frame{Dst: groupMAC, Src: mac, VLAN: vlan}, sender, group, body)
}

// Advertisement is a neighbour advertisement: Target is at MAC.
type Advertisement struct {
	Target netip.Addr
	MAC    openflow.MAC
	// To is the destination of the advertisement.
	To    netip.Addr
	Flags uint8
}

// AppendNeighborAdvertisement appends an advertisement whose source address is its target.
func AppendNeighborAdvertisement(b []byte, f Frame, a Advertisement) []byte {
	t := a.Target.As16()
	body := append([]byte{NeighborAdvertisement, 0, 0, 0, a.Flags, 0, 0, 0}, t[:]...)
	body = append(body, 2, 1)
	body = append(body, a.MAC[:]...)
	return appendICMPv6(b, f, a.Target, a.To, body)
}

func appendICMPv6(b []byte, f Frame, src, dst netip.Addr, body []byte) []byte {
	b = f.appendTo(b, TypeIPv6)
	b = appendIPv6(b, src, dst, ProtoICMPv6, 255, len(body))
	at := len(b)
	b = append(b, body...)
	be.PutUint16(b[at+2:], Checksum(Sum(b[at:], pseudoHeader(src, dst, ProtoICMPv6, len(body)))))
	return b
}

// AppendEchoRequest appends an ICMP echo request in an IPv4 packet. src and dst must be IPv4
// addresses.
func AppendEchoRequest(b []byte, f Frame, src, dst netip.Addr, id, seq uint16, payload []byte) []byte {
	b = f.appendTo(b, TypeIPv4)
	b = appendIPv4(b, src, dst, ProtoICMP, 8+len(payload))
	at := len(b)
	b = append(b, 8, 0, 0, 0)
	b = be.AppendUint16(b, id)
	b = be.AppendUint16(b, seq)
	b = append(b, payload...)
	be.PutUint16(b[at+2:], Checksum(Sum(b[at:], 0)))
	return b
}

// TCPSegment is a TCP segment with its addresses. Both are IPv4 or both IPv6.
type TCPSegment struct {
	Src, Dst netip.AddrPort
	Seq, Ack uint32
	Flags    uint16
	Window   uint16
	Options  []byte // a multiple of four bytes
	Payload  []byte
}

// AppendTCP appends a TCP segment in an IP packet.
func AppendTCP(b []byte, f Frame, s TCPSegment) []byte {
	src, dst := addresses(s.Src, s.Dst)
	options := len(s.Options) &^ 3
	size := 20 + options + len(s.Payload)
	if src.Is4() {
		b = f.appendTo(b, TypeIPv4)
		b = appendIPv4(b, src, dst, ProtoTCP, size)
	} else {
		b = f.appendTo(b, TypeIPv6)
		b = appendIPv6(b, src, dst, ProtoTCP, 64, size)
	}
	at := len(b)
	b = be.AppendUint16(b, s.Src.Port())
	b = be.AppendUint16(b, s.Dst.Port())
	b = be.AppendUint32(b, s.Seq)
	b = be.AppendUint32(b, s.Ack)
	b = be.AppendUint16(b, uint16(5+options/4)<<12|s.Flags&0xfff)
	b = be.AppendUint16(b, s.Window)
	b = append(b, 0, 0, 0, 0)
	b = append(b, s.Options[:options]...)
	b = append(b, s.Payload...)
	be.PutUint16(b[at+16:], Checksum(Sum(b[at:], pseudoHeader(src, dst, ProtoTCP, size))))
	return b
}

// AppendReset appends the segment that resets the connection of the segment in h, sent back to
// its sender, as in RFC 9293 section 3.10.7.1.
func AppendReset(b []byte, h *Headers) []byte {
	s := TCPSegment{Src: h.Destination(), Dst: h.Source(), Flags: RST}
	if h.TCPFlags&ACK != 0 {
		s.Seq = h.Ack
	} else {
		s.Flags |= ACK
		s.Ack = h.Seq + uint32(max(0, h.End-h.Payload))
		if h.TCPFlags&SYN != 0 {
			s.Ack++
		}
		if h.TCPFlags&FIN != 0 {
			s.Ack++
		}
	}
	return AppendTCP(b, Frame{Dst: h.EthSrc, Src: h.EthDst, VLAN: h.VLANID, PCP: h.VLANPCP}, s)
}

// addresses returns the addresses of a packet, both as IPv4 or both as IPv6. IPv6 packets may
// contain mapped IPv4 addresses: only a pair of them is taken for IPv4.
func addresses(src, dst netip.AddrPort) (netip.Addr, netip.Addr) {
	if s, d := src.Addr().Unmap(), dst.Addr().Unmap(); s.Is4() && d.Is4() {
		return s, d
	}
	return netip.AddrFrom16(src.Addr().As16()), netip.AddrFrom16(dst.Addr().As16())
}

func appendIPv4(b []byte, src, dst netip.Addr, proto uint8, size int) []byte {
	at := len(b)
	b = append(b, 0x45, 0)
	b = be.AppendUint16(b, uint16(20+size))
	b = append(b, 0, 0, 0x40, 0, 64, proto, 0, 0) // don't fragment
	s, d := src.As4(), dst.As4()
	b = append(b, s[:]...)
	b = append(b, d[:]...)
	be.PutUint16(b[at+10:], Checksum(Sum(b[at:], 0)))
	return b
}

func appendIPv6(b []byte, src, dst netip.Addr, proto, hops uint8, size int) []byte {
	b = append(b, 0x60, 0, 0, 0)
	b = be.AppendUint16(b, uint16(size))
	b = append(b, proto, hops)
	s, d := src.As16(), dst.As16()
	b = append(b, s[:]...)
	return append(b, d[:]...)
}

// pseudoHeader returns the sum of the pseudo-header that transport checksums include.
func pseudoHeader(src, dst netip.Addr, proto uint8, size int) uint32 {
	s := uint32(proto) + uint32(size)
	if src.Is4() {
		a, b := src.As4(), dst.As4()
		return Sum(b[:], Sum(a[:], s))
	}
	a, b := src.As16(), dst.As16()
	return Sum(b[:], Sum(a[:], s))
}

// Sum adds a packet's 16-bit words to s, the first step of the Internet checksum (RFC 1071). It
// does not overflow for up to 64 KiB.
func Sum(p []byte, s uint32) uint32 {
	for ; len(p) >= 2; p = p[2:] {
		s += uint32(be.Uint16(p))
	}
	if len(p) == 1 {
		s += uint32(p[0]) << 8
	}
	return s
}

// Checksum returns the Internet checksum of a sum: it folds the carries and complements. The
// checksum over bytes that contain their own correct checksum is 0.
func Checksum(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

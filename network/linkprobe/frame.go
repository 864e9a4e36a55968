package linkprobe

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

var be = binary.BigEndian

// Kind is a kind of frame that links and switches may treat differently.
type Kind uint8

// The kinds. Those with DF must not be fragmented.
const (
	LLDP Kind = iota
	ARP
	ICMP
	ICMPDF
	UDP
	UDPDF
	TCP
	TCPDF
	TaggedUDP // in a VLAN
	numKinds
)

var kindNames = [...]string{
	LLDP: "LLDP", ARP: "ARP", ICMP: "ICMP", ICMPDF: "ICMP with DF", UDP: "UDP", UDPDF: "UDP with DF", TCP: "TCP", TCPDF: "TCP with DF", TaggedUDP: "UDP in a VLAN",
}

// String returns the kind's name.
func (k Kind) String() string { return kindNames[k] }

// df reports whether the kind has the don't fragment flag.
func (k Kind) df() bool { return k == ICMPDF || k == UDPDF || k == TCPDF }

// anySize reports whether frames of the kind can have any size.
func (k Kind) anySize() bool { return k >= ICMP && k <= TCPDF }

const (
	// smallest is the size of the smallest Ethernet frame, without its frame check sequence.
	smallest   = 60
	ethHeader  = 14
	tagSize    = 4
	markSize   = 6
	probeVLAN  = 3999 // few networks use it
	typeQinQ   = 0x88a8
	ipv4Header = 20
)

// markAt holds the offset of the mark in each kind's frames, without a tag. The mark is in the
// smallest frame, and so close to its beginning that a device which cuts frames short leaves it.
var markAt = [numKinds]int{
	LLDP: ethHeader + 3, ARP: ethHeader + 18, ICMP: ethHeader + 28, ICMPDF: ethHeader + 28,
	UDP: ethHeader + 28, UDPDF: ethHeader + 28, TCP: ethHeader + 24, TCPDF: ethHeader + 24, TaggedUDP: ethHeader + 28,
}

// addressBlock is the prefix of the source addresses of probes. It is locally administered, as
// the controller's own address is.
var addressBlock = [4]byte{0x02, 0x51, 0x1c, 0x70}

// Is reports whether an address is the source address of probes. The controller learns nothing
// from such frames, and passes them to no service.
func Is(src openflow.MAC) bool { return [4]byte(src[:4]) == addressBlock }

var (
	// target is the destination of probes. No host has it.
	target = openflow.MAC{0x02, 0x51, 0x1c, 0x71, 0, 1}
	// lldpMulticast is the destination address of LLDP.
	lldpMulticast = openflow.MAC{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}
	// The IP addresses of probes are reserved for documentation (RFC 5737).
	sourceIP = netip.MustParseAddr("192.0.2.1")
	targetIP = netip.MustParseAddr("192.0.2.2")
)

// build returns a frame of the given kind and size in bytes. The size includes the tag, but not
// the frame check sequence.
func build(k Kind, size int, src openflow.MAC, mark [markSize]byte) []byte {
	f := packet.Frame{Dst: target, Src: src}
	headers := ethHeader + ipv4Header + 8
	switch k {
	case LLDP:
		return buildLLDP(size, src, mark)
	case ARP:
		b := packet.AppendARP(nil, packet.Frame{Dst: packet.Broadcast, Src: src}, packet.ARPMessage{
			Op: packet.ARPRequest, SenderMAC: src, Sender: netip.IPv4Unspecified(), TargetMAC: mark, Target: targetIP,
		})
		return append(b, make([]byte, size-len(b))...)
	case TCP, TCPDF:
		// The mark is the sequence number and half of the acknowledgement number.
		b := packet.AppendTCP(nil, f, packet.TCPSegment{
			Src: netip.AddrPortFrom(sourceIP, 9), Dst: netip.AddrPortFrom(targetIP, 9), Flags: packet.ACK, Window: 1000,
			Seq: be.Uint32(mark[:]), Ack: uint32(be.Uint16(mark[4:])) << 16, Payload: padding(size - ethHeader - ipv4Header - 20),
		})
		return mayFragment(b, k)
	case ICMP, ICMPDF:
		return mayFragment(packet.AppendEchoRequest(nil, f, sourceIP, targetIP, be.Uint16(mark[:]), 1, payload(mark, size-headers)), k)
	case TaggedUDP:
		f.VLAN = probeVLAN
		headers += tagSize
	}
	b := packet.AppendUDP(nil, f, packet.UDPDatagram{
		Src: netip.AddrPortFrom(sourceIP, 9), Dst: netip.AddrPortFrom(targetIP, 9), Payload: payload(mark, size-headers),
	})
	return mayFragment(b, k)
}

// payload returns the payload of a datagram: the mark and padding.
func payload(mark [markSize]byte, size int) []byte {
	return append(mark[:], padding(size-markSize)...)
}

// padding returns bytes of which no two neighbours are equal.
func padding(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// mayFragment clears the don't fragment flag of an IPv4 packet, unless its kind has it.
func mayFragment(frame []byte, k Kind) []byte {
	if k.df() {
		return frame
	}
	at := ethHeader
	if k == TaggedUDP {
		at += tagSize
	}
	ip := frame[at : at+ipv4Header]
	ip[6] = 0
	be.PutUint16(ip[10:], 0)
	be.PutUint16(ip[10:], packet.Checksum(packet.Sum(ip, 0)))
	return frame
}

// buildLLDP returns an LLDP frame: chassis, port, lifetime, and an organisation-specific TLV
// that fills it.
func buildLLDP(size int, src openflow.MAC, mark [markSize]byte) []byte {
	b := append(lldpMulticast[:], src[:]...)
	b = be.AppendUint16(b, packet.TypeLLDP)
	tlv := func(kind int, value ...byte) {
		b = be.AppendUint16(b, uint16(kind)<<9|uint16(len(value)))
		b = append(b, value...)
	}
	tlv(1, append([]byte{7}, mark[:]...)...)
	tlv(2, 7, '0')
	tlv(3, 0, 1)
	tlv(127, append([]byte{0x02, 0x51, 0x1c, 2}, padding(size-len(b)-8)...)...)
	tlv(0)
	return b
}

// tag returns a frame's outermost VLAN tag; ok is false if it has none.
func tag(frame []byte) (vlan uint16, ok bool) {
	if len(frame) < ethHeader+tagSize {
		return 0, false
	}
	if t := be.Uint16(frame[12:]); t != packet.TypeVLAN && t != typeQinQ {
		return 0, false
	}
	return be.Uint16(frame[14:]) & 0xfff, true
}

// untagged returns a frame without its outermost tag.
func untagged(frame []byte) []byte {
	if _, ok := tag(frame); !ok {
		return frame
	}
	return append(bytes.Clone(frame[:12]), frame[16:]...)
}

package linkprobe

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

var be = binary.BigEndian

// Kind is a kind of frame, as links and switches tell them apart.
type Kind uint8

// The kinds. Those with DF must not be fragmented on their way.
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
	kinds
)

var kindNames = [...]string{
	LLDP: "LLDP", ARP: "ARP", ICMP: "ICMP", ICMPDF: "ICMP with DF", UDP: "UDP", UDPDF: "UDP with DF", TCP: "TCP", TCPDF: "TCP with DF", TaggedUDP: "UDP in a VLAN",
}

// String is the kind as people name it.
func (k Kind) String() string { return kindNames[k] }

// df says whether the kind must not be fragmented.
func (k Kind) df() bool { return k == ICMPDF || k == UDPDF || k == TCPDF }

// sized says whether frames of the kind have any size.
func (k Kind) sized() bool { return k >= ICMP && k <= TCPDF }

const (
	// smallest is the size of the smallest Ethernet frame, without its check sequence.
	smallest   = 60
	ethHeader  = 14
	tagSize    = 4
	markSize   = 6
	probeVLAN  = 3999 // few networks use it
	typeQinQ   = 0x88a8
	ipv4Header = 20
)

// markAt is where a kind's frames have their mark, counted without a tag. It is in the
// smallest frame, and far enough to the front that what cuts frames leaves it.
var markAt = [kinds]int{
	LLDP: ethHeader + 3, ARP: ethHeader + 18, ICMP: ethHeader + 28, ICMPDF: ethHeader + 28,
	UDP: ethHeader + 28, UDPDF: ethHeader + 28, TCP: ethHeader + 24, TCPDF: ethHeader + 24, TaggedUDP: ethHeader + 28,
}

// addressBlock is the beginning of the source addresses of probes; it is in the locally
// administered range, as the controller's own address is.
var addressBlock = [4]byte{0x02, 0x51, 0x1c, 0x70}

// Is says whether an address is that of a probe's sender. Nothing is learned of such, and
// no service is asked about what they send.
func Is(src openflow.MAC) bool { return [4]byte(src[:4]) == addressBlock }

var (
	// target is whom probes are sent to: nobody.
	target = openflow.MAC{0x02, 0x51, 0x1c, 0x71, 0, 1}
	// lldpMulticast is where LLDP is sent to.
	lldpMulticast = openflow.MAC{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}
	// The IP addresses of probes are those that are kept for documentation (RFC 5737).
	sourceIP = netip.MustParseAddr("192.0.2.1")
	targetIP = netip.MustParseAddr("192.0.2.2")
)

// build makes a frame of a kind and of a size in bytes, its tag included and its check
// sequence not.
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
		// The mark is the sequence number and half of the number acknowledged.
		b := packet.AppendTCP(nil, f, packet.TCPSegment{
			Src: netip.AddrPortFrom(sourceIP, 9), Dst: netip.AddrPortFrom(targetIP, 9), Flags: packet.ACK, Window: 1000,
			Seq: be.Uint32(mark[:]), Ack: uint32(be.Uint16(mark[4:])) << 16, Payload: filling(size - ethHeader - ipv4Header - 20),
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

// payload is what a datagram carries: the mark and a filling.
func payload(mark [markSize]byte, size int) []byte {
	return append(mark[:], filling(size-markSize)...)
}

// filling are bytes no two neighbours of which are equal.
func filling(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// mayFragment takes DF off an IPv4 packet whose kind has none.
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

// buildLLDP makes an LLDP frame: chassis, port, lifetime, and a TLV of an organisation
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
	tlv(127, append([]byte{0x02, 0x51, 0x1c, 2}, filling(size-len(b)-8)...)...)
	tlv(0)
	return b
}

// tag reads a frame's outermost VLAN tag; ok is false if it has none.
func tag(frame []byte) (vlan uint16, ok bool) {
	if len(frame) < ethHeader+tagSize {
		return 0, false
	}
	if t := be.Uint16(frame[12:]); t != packet.TypeVLAN && t != typeQinQ {
		return 0, false
	}
	return be.Uint16(frame[14:]) & 0xfff, true
}

// untagged is a frame without its outermost tag.
func untagged(frame []byte) []byte {
	if _, ok := tag(frame); !ok {
		return frame
	}
	return append(bytes.Clone(frame[:12]), frame[16:]...)
}

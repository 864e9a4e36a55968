package packet

import (
	"errors"
	"net/netip"

	"github.com/sluice-net/sluice/openflow"
)

// EtherTypes that the parser knows.
const (
	TypeIPv4      = 0x0800
	TypeARP       = 0x0806
	TypeVLAN      = 0x8100
	TypeQinQ      = 0x88a8
	TypeQinQOld   = 0x9100
	TypeIPv6      = 0x86dd
	TypeMPLS      = 0x8847
	TypeMPLSMulti = 0x8848
	TypeLLDP      = 0x88cc
	// TypeNone is the value that OpenFlow has for an IEEE 802.3 frame without an EtherType.
	TypeNone = 0x05ff
)

// IP protocol numbers that the parser knows.
const (
	ProtoICMP   = 1
	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoICMPv6 = 58
	ProtoSCTP   = 132
)

// TCP flags.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
	NS
)

// ARP operations.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ICMPv6 types of neighbour discovery.
const (
	RouterSolicitation    = 133
	RouterAdvertisement   = 134
	NeighborSolicitation  = 135
	NeighborAdvertisement = 136
	Redirect              = 137
)

// Flags of a neighbour advertisement, as [Headers].NDFlags holds them.
const (
	NDOverride  = 0x20
	NDSolicited = 0x40
	NDRouter    = 0x80
)

// Reasons why parsing stops.
var (
	ErrTruncated = errors.New("packet: frame ends inside a header")
	ErrVersion   = errors.New("packet: IP version does not fit the ethertype")
	ErrLength    = errors.New("packet: a header's length is impossible")
)

// Layers is the set of headers that were parsed completely.
type Layers uint16

// The headers.
const (
	Ethernet Layers = 1 << iota
	VLAN
	MPLS
	ARP
	IPv4
	IPv6
	TCP
	UDP
	SCTP
	ICMPv4
	ICMPv6
	ND
	LLDP
)

// Headers holds the headers of a frame. Fields of headers that are not in Layers are zero.
type Headers struct {
	Layers Layers
	EthDst openflow.MAC
	EthSrc openflow.MAC
	// EthType is the EtherType after the VLAN tags.
	EthType uint16

	// VLANTags is the number of tags. VLANTPID, VLANID and VLANPCP belong to the outermost,
	// InnerVLANID to the second.
	VLANTags    uint8
	VLANPCP     uint8
	VLANTPID    uint16
	VLANID      uint16
	InnerVLANID uint16

	// MPLSLabel, MPLSTC and MPLSBottom are the outermost MPLS label stack entry. The parser
	// stops after MPLS.
	MPLSLabel  uint32
	MPLSTC     uint8
	MPLSBottom bool

	// DSCP, ECN, TTL (or hop limit) and Proto are those of IPv4 or IPv6. Proto is the protocol
	// after all IPv6 extension headers.
	DSCP, ECN, TTL, Proto uint8
	// FragOffset is the fragment's offset in bytes. MoreFragments reports whether further
	// fragments follow. Only the first fragment has transport headers.
	FragOffset    uint16
	MoreFragments bool
	FlowLabel     uint32
	// Src and Dst are the IP addresses; in ARP, those of sender and target.
	Src, Dst netip.Addr

	// Ports of TCP, UDP and SCTP.
	SrcPort, DstPort uint16
	TCPFlags         uint16
	Window           uint16
	Seq, Ack         uint32

	ICMPType, ICMPCode uint8

	ARPOp          uint16
	ARPSHA, ARPTHA openflow.MAC

	// NDTarget is the target of a neighbour solicitation, advertisement or
	// redirect. NDLink is the link-layer address option (source in solicitations
	// and router messages, target in advertisements and redirects), zero if absent.
	NDTarget netip.Addr
	NDLink   openflow.MAC
	NDFlags  uint8

	// L3, L4, Payload and End are offsets into the frame. L3 is the offset of the header after
	// Ethernet and tags, L4 that of the transport (or ICMP) header, and Payload that of the data
	// after it. End is the end of the packet without Ethernet padding. The offset of a missing header
	// is zero. End may lie beyond a frame that the switch has cut short.
	L3, L4, Payload, End int
}

// Has reports whether all these headers were parsed.
func (h *Headers) Has(l Layers) bool { return h.Layers&l == l }

// IsIP reports whether the frame carries IPv4 or IPv6.
func (h *Headers) IsIP() bool { return h.Layers&(IPv4|IPv6) != 0 }

// IsFragment reports whether the packet is a fragment of an IP packet.
func (h *Headers) IsFragment() bool { return h.MoreFragments || h.FragOffset != 0 }

// IsSYN reports whether the packet opens a TCP connection: SYN without ACK.
func (h *Headers) IsSYN() bool { return h.Layers&TCP != 0 && h.TCPFlags&(SYN|ACK|RST|FIN) == SYN }

// Source returns the source address and port.
func (h *Headers) Source() netip.AddrPort { return netip.AddrPortFrom(h.Src, h.SrcPort) }

// Destination returns the destination address and port.
func (h *Headers) Destination() netip.AddrPort { return netip.AddrPortFrom(h.Dst, h.DstPort) }

// TCPOptions returns the options of the TCP header. frame is the frame that was parsed.
func (h *Headers) TCPOptions(frame []byte) []byte {
	if !h.Has(TCP) || h.Payload > len(frame) {
		return nil
	}
	return frame[h.L4+20 : h.Payload]
}

package match

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Header holds the header fields that the packets of one direction of a flow have in common, and
// identifies the flow. A flow is a connection of a transport protocol, or all other IP packets of
// one protocol between two hosts, or all other frames between two MAC addresses.
type Header struct {
	EthType          uint16
	VLAN             uint16 // zero for none
	EthSrc, EthDst   openflow.MAC
	Src, Dst         netip.Addr
	Proto            uint8
	SrcPort, DstPort uint16
}

// HeaderOf returns the header of a packet. It returns false if the packet belongs to no
// flow: a packet to a group of hosts; a fragment, which has no ports; or IPv6 between
// mapped IPv4 addresses, which no host may send (RFC 4038 section 4.2) and no match can
// distinguish from IPv4.
func HeaderOf(h *packet.Headers) (Header, bool) {
	if h.EthDst.IsMulticast() || h.EthSrc.IsMulticast() || h.IsFragment() || h.VLANTags > 1 {
		return Header{}, false
	}
	f := Header{EthType: h.EthType, VLAN: h.VLANID, EthSrc: h.EthSrc, EthDst: h.EthDst}
	if !h.IsIP() {
		return f, h.EthType != packet.TypeARP
	}
	if h.Src.Is4In6() || h.Dst.Is4In6() {
		return Header{}, false
	}
	f.Src, f.Dst, f.Proto = h.Src, h.Dst, h.Proto
	if h.Has(packet.TCP) || h.Has(packet.UDP) || h.Has(packet.SCTP) {
		f.SrcPort, f.DstPort = h.SrcPort, h.DstPort
	}
	return f, true
}

// Reverse returns the header of packets in the opposite direction.
func (h Header) Reverse() Header {
	h.EthSrc, h.EthDst = h.EthDst, h.EthSrc
	h.Src, h.Dst = h.Dst, h.Src
	h.SrcPort, h.DstPort = h.DstPort, h.SrcPort
	return h
}

// Match returns an OpenFlow match of the header's packets that come in by a port, narrowed
// by more.
func (h Header) Match(inPort uint32, more ...openflow.OXM) openflow.Match {
	f := []openflow.OXM{openflow.InPort(inPort), openflow.EthSrc(h.EthSrc), openflow.EthDst(h.EthDst)}
	if h.VLAN != 0 {
		f = append(f, openflow.VLANVID(h.VLAN))
	} else {
		f = append(f, openflow.NoVLAN())
	}
	return h.MatchIP(append(f, more...)...)
}

// MatchIP returns a match of the header's packets from any port and with any MAC addresses.
func (h Header) MatchIP(more ...openflow.OXM) openflow.Match {
	f := []openflow.OXM{openflow.EthType(h.EthType)}
	if h.Src.IsValid() {
		f = append(f, openflow.IPSrc(h.Src), openflow.IPDst(h.Dst), openflow.IPProto(h.Proto))
	}
	switch h.Proto {
	case packet.ProtoTCP:
		f = append(f, openflow.TCPSrc(h.SrcPort), openflow.TCPDst(h.DstPort))
	case packet.ProtoUDP:
		f = append(f, openflow.UDPSrc(h.SrcPort), openflow.UDPDst(h.DstPort))
	case packet.ProtoSCTP:
		f = append(f, openflow.SCTPSrc(h.SrcPort), openflow.SCTPDst(h.DstPort))
	}
	return openflow.MustMatch(append(f, more...)...)
}

var protocolNames = map[uint8]string{packet.ProtoTCP: "tcp", packet.ProtoUDP: "udp", packet.ProtoSCTP: "sctp", packet.ProtoICMP: "icmp", packet.ProtoICMPv6: "icmpv6"}

// String returns the flow in readable form.
func (h Header) String() string {
	if !h.Src.IsValid() {
		return fmt.Sprintf("%#04x %v > %v", h.EthType, h.EthSrc, h.EthDst)
	}
	name, known := protocolNames[h.Proto]
	if !known {
		name = fmt.Sprintf("ip %d", h.Proto)
	}
	if h.SrcPort == 0 && h.DstPort == 0 {
		return fmt.Sprintf("%s %v > %v", name, h.Src, h.Dst)
	}
	return fmt.Sprintf("%s %v > %v", name, netip.AddrPortFrom(h.Src, h.SrcPort), netip.AddrPortFrom(h.Dst, h.DstPort))
}

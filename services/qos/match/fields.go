package match

import (
	"net/netip"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// field describes how one field of a description is parsed.
type field struct {
	name string
	of   func(*Flow) Text
	// read returns the field's values, any of which may match. If the text is invalid, it
	// returns no values and a description of valid ones.
	read func(string) ([]openflow.OXM, string)
	// types and proto are the ethertypes and the IP protocol of the packets that have the field;
	// nil and zero if all packets may have it.
	types []uint16
	proto uint8
}

var (
	onlyIPv4 = []uint16{packet.TypeIPv4}
	onlyIPv6 = []uint16{packet.TypeIPv6}
	anyIP    = []uint16{packet.TypeIPv4, packet.TypeIPv6}
)

// fields lists all fields except ethertype and protocol, which are determined first.
var fields = []field{
	{"in_port", func(f *Flow) Text { return f.InPort }, number(1, uint64(openflow.PortMax), "a port number, 1 to 4294967040", openflow.InPort), nil, 0},
	{"eth_src", func(f *Flow) Text { return f.EthSrc }, mac(openflow.EthSrc), nil, 0},
	{"eth_dst", func(f *Flow) Text { return f.EthDst }, mac(openflow.EthDst), nil, 0},
	{"vlan_vid", func(f *Flow) Text { return f.VLANVID }, vlan, nil, 0},
	{"vlan_pcp", func(f *Flow) Text { return f.VLANPCP }, number(0, 7, "a priority, 0 to 7", narrow(openflow.VLANPCP)), nil, 0},
	{"ip_dscp", func(f *Flow) Text { return f.IPDSCP }, number(0, 63, "a DSCP, 0 to 63", narrow(openflow.IPDSCP)), anyIP, 0},
	{"ip_ecn", func(f *Flow) Text { return f.IPECN }, number(0, 3, "ECN bits, 0 to 3", narrow(openflow.IPECN)), anyIP, 0},
	{"ipv4_src", func(f *Flow) Text { return f.IPv4Src }, prefix(netip.Addr.Is4, wantIPv4, openflow.IPSrcPrefix), onlyIPv4, 0},
	{"ipv4_dst", func(f *Flow) Text { return f.IPv4Dst }, prefix(netip.Addr.Is4, wantIPv4, openflow.IPDstPrefix), onlyIPv4, 0},
	{"ipv6_src", func(f *Flow) Text { return f.IPv6Src }, prefix(netip.Addr.Is6, wantIPv6, openflow.IPSrcPrefix), onlyIPv6, 0},
	{"ipv6_dst", func(f *Flow) Text { return f.IPv6Dst }, prefix(netip.Addr.Is6, wantIPv6, openflow.IPDstPrefix), onlyIPv6, 0},
	{"tcp_src", func(f *Flow) Text { return f.TCPSrc }, ports(openflow.TCPSrc), anyIP, packet.ProtoTCP},
	{"tcp_dst", func(f *Flow) Text { return f.TCPDst }, ports(openflow.TCPDst), anyIP, packet.ProtoTCP},
	{"udp_src", func(f *Flow) Text { return f.UDPSrc }, ports(openflow.UDPSrc), anyIP, packet.ProtoUDP},
	{"udp_dst", func(f *Flow) Text { return f.UDPDst }, ports(openflow.UDPDst), anyIP, packet.ProtoUDP},
	{"sctp_src", func(f *Flow) Text { return f.SCTPSrc }, ports(openflow.SCTPSrc), anyIP, packet.ProtoSCTP},
	{"sctp_dst", func(f *Flow) Text { return f.SCTPDst }, ports(openflow.SCTPDst), anyIP, packet.ProtoSCTP},
	{"icmpv4_type", func(f *Flow) Text { return f.ICMPv4Type }, number(0, 255, wantByte, narrow(openflow.ICMPv4Type)), onlyIPv4, packet.ProtoICMP},
	{"icmpv4_code", func(f *Flow) Text { return f.ICMPv4Code }, number(0, 255, wantByte, narrow(openflow.ICMPv4Code)), onlyIPv4, packet.ProtoICMP},
	{"icmpv6_type", func(f *Flow) Text { return f.ICMPv6Type }, number(0, 255, wantByte, narrow(openflow.ICMPv6Type)), onlyIPv6, packet.ProtoICMPv6},
	{"icmpv6_code", func(f *Flow) Text { return f.ICMPv6Code }, number(0, 255, wantByte, narrow(openflow.ICMPv6Code)), onlyIPv6, packet.ProtoICMPv6},
}

const (
	wantIPv4 = "an IPv4 address like 10.0.0.7 or a prefix like 10.0.0.0/24"
	wantIPv6 = "an IPv6 address like 2001:db8::7 or a prefix like 2001:db8::/64"
	wantByte = "a number, 0 to 255"
)

// narrow adapts the constructor of an 8-bit field to number.
func narrow(of func(uint8) openflow.OXM) func(uint32) openflow.OXM {
	return func(v uint32) openflow.OXM { return of(uint8(v)) }
}

var (
	etherTypes = map[string]uint32{"ip": packet.TypeIPv4, "ipv4": packet.TypeIPv4, "ipv6": packet.TypeIPv6, "arp": packet.TypeARP}
	protocols  = map[string]uint32{
		"tcp": packet.ProtoTCP, "udp": packet.ProtoUDP, "sctp": packet.ProtoSCTP, "icmp": packet.ProtoICMP, "icmpv6": packet.ProtoICMPv6,
	}
)

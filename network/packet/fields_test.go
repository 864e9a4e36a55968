package packet

import (
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

func TestFields(t *testing.T) {
	a, b := openflow.MAC{2, 0, 0, 0, 0, 0xa}, openflow.MAC{2, 0, 0, 0, 0, 0xb}
	frame := func(h Headers) Headers {
		h.EthSrc, h.EthDst, h.Layers = a, b, h.Layers|Ethernet
		return h
	}
	want := func(typ uint16, more ...openflow.OXM) openflow.Match {
		return openflow.MustMatch(append(more, openflow.EthSrc(a), openflow.EthDst(b), openflow.EthType(typ))...)
	}
	ip := Headers{Layers: IPv4, EthType: TypeIPv4, Src: addr("10.0.0.1"), Dst: addr("10.0.0.2"), DSCP: 46, ECN: 1}
	ipFields := func(proto uint8, more ...openflow.OXM) openflow.Match {
		return want(TypeIPv4, append(more, openflow.NoVLAN(), openflow.IPSrc(ip.Src), openflow.IPDst(ip.Dst),
			openflow.IPProto(proto), openflow.IPDSCP(46), openflow.IPECN(1))...)
	}
	over := func(l Layers, proto uint8, h Headers) Headers {
		h.Layers, h.EthType, h.Src, h.Dst, h.DSCP, h.ECN, h.Proto = IPv4|l, TypeIPv4, ip.Src, ip.Dst, 46, 1, proto
		return frame(h)
	}
	ports := Headers{SrcPort: 40000, DstPort: 80, TCPFlags: SYN | ACK}
	nd := frame(Headers{Layers: IPv6 | ICMPv6, EthType: TypeIPv6, Src: addr("fd00::1"), Dst: addr("::ffff:10.0.0.2"), Proto: ProtoICMPv6, ICMPType: NeighborSolicitation, NDTarget: addr("::ffff:10.0.0.9")})
	mapped := func(f openflow.Field, s string) openflow.OXM { return openflow.OXM{Field: f, Value: addr(s).As16()} }
	ndFields := []openflow.OXM{
		openflow.NoVLAN(), openflow.IPSrc(nd.Src), mapped(openflow.FieldIPv6Dst, "::ffff:10.0.0.2"), openflow.IPProto(ProtoICMPv6), openflow.IPDSCP(0), openflow.IPECN(0),
		openflow.ICMPv6Code(0),
	}
	redirect := nd
	redirect.ICMPType = Redirect
	for name, c := range map[string]struct {
		h    Headers
		want openflow.Match
	}{
		"TCP":    {over(TCP, ProtoTCP, ports), ipFields(ProtoTCP, openflow.TCPSrc(40000), openflow.TCPDst(80), openflow.TCPFlags(SYN|ACK, 0xfff))},
		"UDP":    {over(UDP, ProtoUDP, ports), ipFields(ProtoUDP, openflow.UDPSrc(40000), openflow.UDPDst(80))},
		"SCTP":   {over(SCTP, ProtoSCTP, ports), ipFields(ProtoSCTP, openflow.SCTPSrc(40000), openflow.SCTPDst(80))},
		"ICMP":   {over(ICMPv4, ProtoICMP, Headers{ICMPType: 3, ICMPCode: 1}), ipFields(ProtoICMP, openflow.ICMPv4Type(3), openflow.ICMPv4Code(1))},
		"no TCP": {over(0, ProtoTCP, Headers{FragOffset: 8}), ipFields(ProtoTCP)},
		"ARP": {
			frame(Headers{Layers: ARP, EthType: TypeARP, Src: ip.Src, Dst: ip.Dst, ARPOp: ARPReply, ARPSHA: a, ARPTHA: b}),
			want(TypeARP, openflow.NoVLAN(), openflow.ARPOp(ARPReply), openflow.ARPSPA(ip.Src), openflow.ARPTPA(ip.Dst), openflow.ARPSHA(a), openflow.ARPTHA(b)),
		},
		"MPLS in a VLAN": {
			frame(Headers{Layers: VLAN | MPLS, EthType: TypeMPLS, VLANID: 7, VLANPCP: 5, MPLSLabel: 17, MPLSTC: 3}),
			want(TypeMPLS, openflow.VLANVID(7), openflow.VLANPCP(5), openflow.MPLSLabel(17), openflow.MPLSTC(3)),
		},
		"solicitation by and for mapped addresses": {
			nd, want(TypeIPv6, append(ndFields, openflow.ICMPv6Type(NeighborSolicitation), mapped(openflow.FieldNDTarget, "::ffff:10.0.0.9"))...),
		},
		"redirect": {redirect, want(TypeIPv6, append(ndFields, openflow.ICMPv6Type(Redirect))...)},
		"LLDP":     {frame(Headers{Layers: LLDP, EthType: TypeLLDP}), want(TypeLLDP, openflow.NoVLAN())},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := openflow.NewMatch(c.h.Fields()...)
			if err != nil || m != c.want {
				t.Errorf("%v (%v)\nwant %v", m, err, c.want)
			}
		})
	}
}

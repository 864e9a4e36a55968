package packet

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sluice-net/sluice/openflow"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 0xa}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
)

func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ls...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func ether(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: t}
}

func ip4(p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 61, TOS: 46<<2 | 1, Protocol: p, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
}

func ip6(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{
		Version: 6, HopLimit: 255, TrafficClass: 46 << 2, FlowLabel: 0x12345, NextHeader: next,
		SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2"),
	}
}

func tcp(ip gopacket.NetworkLayer) *layers.TCP {
	l := &layers.TCP{
		SrcPort: 40000, DstPort: 80, Seq: 0x01020304, Ack: 0x05060708, SYN: true, ACK: true, Window: 29200,
		Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 0xb4}}},
	}
	_ = l.SetNetworkLayerForChecksum(ip)
	return l
}

// base is common to all frames of the helpers above.
func base(l Layers, ethType uint16, l3, l4, payload, end int) Headers {
	return Headers{
		Layers: Ethernet | l, EthDst: openflow.MAC(macB), EthSrc: openflow.MAC(macA), EthType: ethType,
		L3: l3, L4: l4, Payload: payload, End: end,
	}
}

func withIP4(h Headers, proto uint8) Headers {
	h.Layers |= IPv4
	h.DSCP, h.ECN, h.TTL, h.Proto = 46, 1, 61, proto
	h.Src, h.Dst = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	return h
}

func withIP6(h Headers, proto uint8) Headers {
	h.Layers |= IPv6
	h.DSCP, h.TTL, h.Proto, h.FlowLabel = 46, 255, proto, 0x12345
	h.Src, h.Dst = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	return h
}

func withTCP(h Headers) Headers {
	h.Layers |= TCP
	h.SrcPort, h.DstPort, h.Seq, h.Ack = 40000, 80, 0x01020304, 0x05060708
	h.TCPFlags, h.Window = SYN|ACK, 29200
	return h
}

func TestParse(t *testing.T) {
	payload := gopacket.Payload("hello")
	v4, v6 := ip4(layers.IPProtocolTCP), ip6(layers.IPProtocolTCP)
	u4 := &layers.UDP{SrcPort: 53, DstPort: 5353}
	_ = u4.SetNetworkLayerForChecksum(v4)
	tests := []struct {
		name  string
		frame []byte
		want  Headers
	}{
		{
			"tcp", serialize(t, ether(layers.EthernetTypeIPv4), v4, tcp(v4), payload),
			withTCP(withIP4(base(0, TypeIPv4, 14, 34, 58, 63), ProtoTCP)),
		},
		{
			"tcp over IPv6", serialize(t, ether(layers.EthernetTypeIPv6), v6, tcp(v6), payload),
			withTCP(withIP6(base(0, TypeIPv6, 14, 54, 78, 83), ProtoTCP)),
		},
		{
			"udp in two VLANs",
			serialize(t, ether(layers.EthernetTypeQinQ),
				&layers.Dot1Q{VLANIdentifier: 100, Priority: 5, Type: layers.EthernetTypeDot1Q},
				&layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4},
				ip4(layers.IPProtocolUDP), u4, payload),
			func() Headers {
				h := withIP4(base(VLAN|UDP, TypeIPv4, 22, 42, 50, 55), ProtoUDP)
				h.VLANTags, h.VLANTPID, h.VLANID, h.VLANPCP, h.InnerVLANID = 2, TypeQinQ, 100, 5, 7
				h.SrcPort, h.DstPort = 53, 5353
				return h
			}(),
		},
		{
			"mpls", serialize(t, ether(layers.EthernetTypeMPLSUnicast), &layers.MPLS{Label: 17, TrafficClass: 3, StackBottom: true, TTL: 9}, payload),
			func() Headers {
				h := base(MPLS, TypeMPLS, 14, 0, 0, 23)
				h.MPLSLabel, h.MPLSTC, h.MPLSBottom, h.TTL = 17, 3, true, 9
				return h
			}(),
		},
		{
			"arp", serialize(t, ether(layers.EthernetTypeARP), &layers.ARP{
				AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 2,
				SourceHwAddress: macA, SourceProtAddress: net.IP{10, 0, 0, 1}, DstHwAddress: macB, DstProtAddress: net.IP{10, 0, 0, 2},
			}, gopacket.Payload(make([]byte, 18))),
			func() Headers {
				h := base(ARP, TypeARP, 14, 0, 0, 42)
				h.ARPOp, h.ARPSHA, h.ARPTHA = ARPReply, openflow.MAC(macA), openflow.MAC(macB)
				h.Src, h.Dst = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
				return h
			}(),
		},
		{
			"icmp", serialize(t, ether(layers.EthernetTypeIPv4), ip4(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 1)}),
			func() Headers {
				h := withIP4(base(ICMPv4, TypeIPv4, 14, 34, 42, 42), ProtoICMP)
				h.ICMPType, h.ICMPCode = 3, 1
				return h
			}(),
		},
		{"lldp", serialize(t, ether(layers.EthernetTypeLinkLayerDiscovery), payload), base(LLDP, TypeLLDP, 14, 0, 0, 19)},
		{"802.3", serialize(t, ether(5), payload), base(0, TypeNone, 14, 0, 0, 60)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "802.3" { // gopacket writes the length in place of the type
				binary.BigEndian.PutUint16(tt.frame[12:], 5)
			}
			tt.want.End = max(tt.want.End, 0)
			got, err := Parse(tt.frame)
			if tt.want.EthType == TypeLLDP || tt.want.EthType == TypeMPLS || tt.want.EthType == TypeNone {
				tt.want.End = len(tt.frame)
			}
			if err != nil || got != tt.want {
				t.Errorf("got  %+v (%v)\nwant %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseExtensionHeaders(t *testing.T) {
	v6 := ip6(layers.IPProtocolTCP)
	segment := serialize(t, tcp(v6))
	ext := []byte{43, 0, 0, 0, 0, 0, 0, 0} // hop-by-hop, then routing
	ext = append(ext, 44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	ext = append(ext, 51, 0, 0, 1, 0, 0, 0, 9)             // first fragment, more follow
	ext = append(ext, 60, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2) // authentication, 12 bytes
	ext = append(ext, ProtoTCP, 0, 1, 4, 0, 0, 0, 0)       // destination options
	v6.NextHeader = 0
	frame := serialize(t, ether(layers.EthernetTypeIPv6), v6, gopacket.Payload(append(ext, segment...)))
	h, err := Parse(frame)
	if err != nil || !h.Has(IPv6|TCP) || h.L4 != 54+len(ext) || h.DstPort != 80 || !h.MoreFragments || h.FragOffset != 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	binary.BigEndian.PutUint16(frame[54+8+16+2:], 64<<3|1) // now a later fragment
	h, err = Parse(frame)
	if err != nil || h.Has(TCP) || h.FragOffset != 512 || h.L4 != 0 || h.Payload == 0 {
		t.Fatalf("later fragment: %+v, %v", h, err)
	}
}

func TestParseNeighbourDiscovery(t *testing.T) {
	v6 := ip6(layers.IPProtocolICMPv6)
	for _, tt := range []struct {
		name   string
		kind   uint8
		body   gopacket.SerializableLayer
		target string
		flags  uint8
	}{
		{"solicitation", NeighborSolicitation, &layers.ICMPv6NeighborSolicitation{
			TargetAddress: net.ParseIP("fd00::2"),
			Options:       layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: macA}},
		}, "fd00::2", 0},
		{"advertisement", NeighborAdvertisement, &layers.ICMPv6NeighborAdvertisement{
			Flags: NDRouter | NDOverride, TargetAddress: net.ParseIP("fd00::1"),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: macA}},
		}, "fd00::1", NDRouter | NDOverride},
		{"router advertisement", RouterAdvertisement, &layers.ICMPv6RouterAdvertisement{
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptMTU, Data: make([]byte, 6)}, {Type: layers.ICMPv6OptSourceAddress, Data: macA}},
		}, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(tt.kind, 0)}
			_ = icmp.SetNetworkLayerForChecksum(v6)
			h, err := Parse(serialize(t, ether(layers.EthernetTypeIPv6), v6, icmp, tt.body))
			if err != nil || !h.Has(ICMPv6|ND) || h.ICMPType != tt.kind || h.NDLink != openflow.MAC(macA) || h.NDFlags != tt.flags {
				t.Fatalf("%+v, %v", h, err)
			}
			if got := h.NDTarget; got.IsValid() != (tt.target != "") || got.IsValid() && got.String() != tt.target {
				t.Errorf("target %v, want %q", got, tt.target)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	v4, v6 := ip4(layers.IPProtocolTCP), ip6(layers.IPProtocolTCP)
	good4 := serialize(t, ether(layers.EthernetTypeIPv4), v4, tcp(v4))
	good6 := serialize(t, ether(layers.EthernetTypeIPv6), v6, tcp(v6))
	change := func(frame []byte, at int, v ...byte) []byte {
		f := append([]byte(nil), frame...)
		copy(f[at:], v)
		return f
	}
	nd := AppendNeighborSolicitation(nil, openflow.MAC(macA), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::2"), 0)
	tests := []struct {
		name  string
		frame []byte
		err   error
		has   Layers // what must still have been read
	}{
		{"empty", nil, ErrTruncated, 0},
		{"no ethertype", good4[:13], ErrTruncated, 0},
		{"ends in tag", append(good4[:12:12], 0x81, 0, 0, 1), ErrTruncated, Ethernet | VLAN},
		{"ends in IPv4", good4[:33], ErrTruncated, Ethernet},
		{"version 5", change(good4, 14, 0x55), ErrVersion, Ethernet},
		{"IHL 4", change(good4, 14, 0x44), ErrLength, Ethernet},
		{"total below header", change(good4, 16, 0, 19), ErrLength, Ethernet},
		{"options beyond frame", change(good4[:34], 14, 0x4f, 0, 0, 100), ErrTruncated, Ethernet},
		{"IPv4 ends before TCP does", change(good4, 16, 0, 30), ErrTruncated, Ethernet | IPv4},
		{"cut in TCP", good4[:50], ErrTruncated, Ethernet | IPv4},
		{"TCP offset 4", change(good4, 46, 0x40), ErrLength, Ethernet | IPv4},
		{"TCP offset beyond packet", change(good4, 46, 0xf0), ErrTruncated, Ethernet | IPv4},
		{"ends in IPv6", good6[:53], ErrTruncated, Ethernet},
		{"IPv6 says 4", change(good6, 14, 0x40), ErrVersion, Ethernet},
		{"extension beyond packet", change(good6, 20, 0), ErrTruncated, Ethernet | IPv6},
		{"ND option of length zero", change(nd, 14+40+24, 1, 0), ErrLength, Ethernet | IPv6 | ICMPv6},
		{"ND option beyond packet", change(nd, 14+40+24, 1, 2), ErrTruncated, Ethernet | IPv6 | ICMPv6},
		{"ARP of another kind", change(AppendARPRequest(nil, openflow.MAC(macA), v4addr, v4addr, 0), 14, 0, 6), ErrLength, Ethernet},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := Parse(tt.frame)
			if !errors.Is(err, tt.err) || h.Layers != tt.has {
				t.Errorf("layers %b, %v; want %b, %v", h.Layers, err, tt.has, tt.err)
			}
		})
	}
}

var v4addr = netip.MustParseAddr("10.0.0.9")

func TestParseDoesNotAllocate(t *testing.T) {
	v6 := ip6(layers.IPProtocolTCP)
	frame := serialize(t, ether(layers.EthernetTypeIPv6), v6, tcp(v6))
	var h Headers
	if n := testing.AllocsPerRun(100, func() { _ = h.Parse(frame) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkParseTCP(b *testing.B) {
	v4 := ip4(layers.IPProtocolTCP)
	frame := serialize(b, ether(layers.EthernetTypeIPv4), v4, tcp(v4))
	var h Headers
	for b.Loop() {
		_ = h.Parse(frame)
	}
}

func BenchmarkParseTCP6(b *testing.B) {
	v6 := ip6(layers.IPProtocolTCP)
	frame := serialize(b, ether(layers.EthernetTypeIPv6), v6, tcp(v6))
	var h Headers
	for b.Loop() {
		_ = h.Parse(frame)
	}
}

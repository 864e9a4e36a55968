package openflow

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestNewMatchRefuses(t *testing.T) {
	ip4, ip6 := EthType(0x800), EthType(0x86dd)
	for _, c := range []struct {
		name string
		oxms []OXM
		want string
	}{
		{"port without protocol", []OXM{ip4, TCPDst(80)}, "tcp_dst=80 needs ip_proto=6"},
		{"port of another protocol", []OXM{ip4, IPProto(17), TCPDst(80)}, "tcp_dst=80 needs ip_proto=6"},
		{"protocol without IP", []OXM{IPProto(6)}, "ip_proto=6 needs eth_type=0x800 or 0x86dd"},
		{"IPv4 address in IPv6", []OXM{ip6, IPDst(v4)}, "ip_dst=10.1.2.3 needs eth_type=0x800"},
		{"IPv6 address in IPv4", []OXM{ip4, IPDst(v6)}, "ipv6_dst=2001:db8::1 needs eth_type=0x86dd"},
		{"ICMP in IPv6", []OXM{ip6, IPProto(1), ICMPv4Type(8)}, "icmp_type=8 needs eth_type=0x800"},
		{"ARP in IP", []OXM{ip4, ARPOp(1)}, "arp_op=1 needs eth_type=0x806"},
		{"priority without VLAN", []OXM{VLANPCP(1)}, "vlan_pcp=1 needs vlan_vid with the bits 0x1000"},
		{"priority of untagged", []OXM{NoVLAN(), VLANPCP(1)}, "vlan_pcp=1 needs vlan_vid with the bits 0x1000"},
		{"label without MPLS", []OXM{MPLSLabel(1)}, "mpls_label=1 needs eth_type=0x8847 or 0x8848"},
		{"ND option of the other message", []OXM{ip6, IPProto(58), ICMPv6Type(136), NDSLL(mac1)}, "nd_sll=02:00:00:00:00:01 needs icmpv6_type=135"},
		{"physical port alone", []OXM{InPhyPort(1)}, "in_phy_port=1 needs in_port"},
		{"TCP flags without TCP", []OXM{ip4, TCPFlags(2, 2)}, "tcp_flags=+syn needs ip_proto=6"},
		{"prerequisite that matches all", []OXM{EthType(0).WithMask(0), IPProto(6)}, "cannot be masked"},
		{"field twice", []OXM{InPort(1), InPort(1)}, "in_port is given twice"},
		{"masked in_port", []OXM{InPort(1).WithMask(1)}, "in_port cannot be masked"},
		{"masked protocol", []OXM{ip4, IPProto(6).WithMask(6)}, "ip_proto cannot be masked"},
		{"value outside the mask", []OXM{Metadata(3).WithMask(1)}, "the value has bits outside its mask"},
		{"wide VLAN", []OXM{VLANVID(4096)}, "a field was made from an address or number that it cannot hold"},
		{"wide priority", []OXM{VLANVID(1), VLANPCP(8)}, "the value is wider than the field's 3 bits"},
		{"wide DSCP", []OXM{ip4, IPDSCP(64)}, "the value is wider than the field's 6 bits"},
		{"wide label", []OXM{EthType(0x8847), MPLSLabel(1 << 20)}, "the value is wider than the field's 20 bits"},
		{"wide mask", []OXM{ip4, IPProto(6), TCPFlags(1, 0x1001)}, "the mask is wider than the field's 12 bits"},
		{"wide TCP flags", []OXM{ip4, IPProto(6), TCPFlags(0x1000, 0x1000)}, "the value is wider than the field's 12 bits"},
		{"no address", []OXM{ip4, IPDst(netip.Addr{})}, "a field was made from an address"},
		{"no prefix", []OXM{ip4, IPDstPrefix(netip.Prefix{})}, "a field was made from an address"},
		{"IPv6 in ARP", []OXM{EthType(0x806), ARPSPA(v6)}, "a field was made from an address"},
		{"IPv4 in neighbour discovery", []OXM{NDTarget(v4)}, "a field was made from an address"},
		{"number as IPv6 mask", []OXM{ip6, IPDst(v6).WithMask(1)}, "a field was made from an address"},
	} {
		_, err := NewMatch(c.oxms...)
		if !errors.Is(err, ErrMatch) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestMatchHasOneForm(t *testing.T) {
	ip4 := EthType(0x800)
	same := [][2]Match{
		{MustMatch(InPort(1), EthDst(mac1)), MustMatch(EthDst(mac1), InPort(1))},
		{MustMatch(EthDst(mac1)), MustMatch(EthDst(mac1).WithMask(0xffffffffffff))},
		{MustMatch(), MustMatch(EthDst(MAC{}).WithMask(0))},
		{MustMatch(ip4, IPDst(v4)), MustMatch(ip4, IPDstPrefix(netip.PrefixFrom(v4, 32)))},
		{MustMatch(ip4), MustMatch(ip4, IPSrcPrefix(netip.MustParsePrefix("0.0.0.0/0")))},
		{MustMatch(ip4, IPSrcPrefix(netip.MustParsePrefix("10.9.8.7/8"))), MustMatch(ip4, IPSrcPrefix(netip.MustParsePrefix("::ffff:10.0.0.0/104")))},
		{MustMatch(ip4, IPDst(v4)), MustMatch(ip4, IPDst(netip.AddrFrom16(v4.As16())))},
		{MustMatch(ip4, IPProto(6), TCPFlags(2, 0xfff)), MustMatch(ip4, IPProto(6), oxmUint(FieldTCPFlags, 2))},
	}
	for i, pair := range same {
		if pair[0] != pair[1] {
			t.Errorf("%d: {%v} is not {%v}", i, pair[0], pair[1])
		}
	}
	index := map[Match]int{same[0][0]: 7}
	if index[same[0][1]] != 7 {
		t.Error("a match does not find itself in a map")
	}
}

func TestMatchWith(t *testing.T) {
	m := MustMatch(InPort(1), EthType(0x800))
	more, err := m.With(InPort(2), IPProto(6))
	if err != nil || more != MustMatch(InPort(2), EthType(0x800), IPProto(6)) || m != MustMatch(InPort(1), EthType(0x800)) {
		t.Errorf("got {%v} (%v), and {%v} before", more, err, m)
	}
	if _, err := m.With(TCPDst(80)); !errors.Is(err, ErrMatch) {
		t.Errorf("got %v, want a refusal", err)
	}
	if m.IsZero() || !(Match{}).IsZero() {
		t.Error("IsZero is wrong")
	}
	if _, ok := m.Get(FieldTCPDst); ok {
		t.Error("a field is found that is not there")
	}
}

func TestOXMValues(t *testing.T) {
	if got := TCPDst(9877).Uint(); got != 9877 {
		t.Errorf("Uint is %d", got)
	}
	if got := EthDst(mac1).MAC(); got != mac1 {
		t.Errorf("MAC is %v", got)
	}
	if a, b, c := IPDst(v4).Addr(), IPDst(v6).Addr(), TCPDst(1).Addr(); a != v4 || b != v6 || c.IsValid() {
		t.Errorf("Addr is %v, %v, %v", a, b, c)
	}
	if a, b := VLANVID(1).MaskUint(), Metadata(0).WithMask(0xf0).MaskUint(); a != 0x1fff || b != 0xf0 {
		t.Errorf("MaskUint is %#x, %#x", a, b)
	}
}

func TestMatchCovers(t *testing.T) {
	net8 := MustMatch(EthType(0x800), IPDstPrefix(netip.MustParsePrefix("10.0.0.0/8")))
	host := MustMatch(EthType(0x800), IPDst(v4), InPort(3))
	other := MustMatch(EthType(0x800), IPDst(netip.MustParseAddr("11.0.0.1")))
	for _, c := range []struct {
		m, o Match
		want bool
	}{{net8, host, true}, {host, net8, false}, {net8, other, false}, {Match{}, host, true}, {host, Match{}, false}} {
		if got := c.m.Covers(c.o); got != c.want {
			t.Errorf("{%v} covers {%v}: %v, want %v", c.m, c.o, got, c.want)
		}
	}
}

func TestMatchOverlaps(t *testing.T) {
	udp := func(oxms ...OXM) Match { return MustMatch(append(oxms, EthType(0x800), IPProto(17))...) }
	for _, c := range []struct {
		m, o Match
		want bool
	}{
		{udp(UDPDst(5)), udp(UDPSrc(6)), true},
		{udp(UDPDst(5)), udp(UDPDst(6)), false},
		{udp(UDPDst(4).WithMask(0xfffc)), udp(UDPDst(6)), true},
		{udp(UDPDst(4).WithMask(0xfffc)), udp(UDPDst(8)), false},
		{udp(), MustMatch(EthType(0x86dd)), false},
		{Match{}, udp(UDPDst(5)), true},
	} {
		if a, b := c.m.Overlaps(c.o), c.o.Overlaps(c.m); a != c.want || b != c.want {
			t.Errorf("{%v} overlaps {%v}: %v and %v, want %v", c.m, c.o, a, b, c.want)
		}
	}
}

// TestFieldTable checks what holds for every row.
func TestFieldTable(t *testing.T) {
	names := make(map[string]bool)
	for f := range numFields {
		info := &fields[f]
		if info.exp == 0 && info.num != uint8(f) {
			t.Errorf("%v has number %d", f, info.num)
		}
		if int(info.bits) > int(info.size)*8 || info.bits == 0 {
			t.Errorf("%v: %d bits in %d bytes", f, info.bits, info.size)
		}
		if names[info.name] {
			t.Errorf("the name %q occurs twice", info.name)
		}
		names[info.name] = true
		if got, err := ParseField(f.Name()); err != nil || got != f {
			t.Errorf("ParseField(%q) is %v (%v)", f.Name(), got, err)
		}
		id := NewFieldID(f, f.Maskable())
		if got, ok := id.Field(); !ok || got != f || id.Masked() != f.Maskable() {
			t.Errorf("%v: its identifier %v means %v", f, id, got)
		}
		for _, need := range info.needs {
			if need.field >= f && f != FieldVLANPCP {
				t.Errorf("%v needs %v, which would follow it on the wire", f, need.field)
			}
		}
	}
	if _, err := ParseField("nosuch"); err == nil {
		t.Error("a field was found that does not exist")
	}
	if FieldTCPSrc.StandardMask() || !FieldTCPSrc.Maskable() || !FieldIPv4Src.StandardMask() {
		t.Error("masks beyond the specification are not told apart")
	}
}

func TestMatchReadsWithoutAllocating(t *testing.T) {
	m := benchFlowMod().Match
	var o OXM
	allocs := testing.AllocsPerRun(100, func() {
		o, _ = m.Get(FieldTCPDst)
		for o = range m.Fields() {
			if o.Field == FieldIPProto {
				break
			}
		}
	})
	if allocs != 0 || o.Uint() != 6 {
		t.Errorf("Get and Fields allocate %v times, want 0", allocs)
	}
}

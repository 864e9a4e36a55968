package match

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

func decode(t *testing.T, text string) Flow {
	t.Helper()
	var f Flow
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

var (
	ip4, ip6 = openflow.EthType(0x0800), openflow.EthType(0x86dd)
	addr     = netip.MustParseAddr
	prefixOf = netip.MustParsePrefix
)

func TestParse(t *testing.T) {
	m := openflow.MustMatch
	for _, c := range []struct {
		name, json string
		want       []openflow.Match
	}{
		{
			"the dissertation's", `{"ipv4_src": "10.0.0.2", "ipv4_dst": "10.0.0.4", "tcp_src": "5001"}`,
			[]openflow.Match{m(ip4, openflow.IPProto(6), openflow.IPSrc(addr("10.0.0.2")), openflow.IPDst(addr("10.0.0.4")), openflow.TCPSrc(5001))},
		},
		{
			"numbers as numbers", `{"eth_type": 2048, "ip_proto": 17, "ip_dscp": 46}`,
			[]openflow.Match{m(ip4, openflow.IPProto(17), openflow.IPDSCP(46))},
		},
		{
			"names", `{"eth_type": "ipv6", "ip_proto": "tcp", "ipv6_dst": "2001:db8::/32"}`,
			[]openflow.Match{m(ip6, openflow.IPProto(6), openflow.IPDstPrefix(prefixOf("2001:db8::/32")))},
		},
		{
			"a port of both versions", `{"udp_dst": 53}`,
			[]openflow.Match{m(ip4, openflow.IPProto(17), openflow.UDPDst(53)), m(ip6, openflow.IPProto(17), openflow.UDPDst(53))},
		},
		{
			"a range", `{"ipv4_dst": "10.0.0.0/24", "tcp_dst": "5000-5003"}`,
			[]openflow.Match{m(ip4, openflow.IPProto(6), openflow.IPDstPrefix(prefixOf("10.0.0.0/24")), openflow.TCPDst(5000).WithMask(0xfffc))},
		},
		{
			"link layer", `{"in_port": "3", "eth_src": "02:00:00:00:00:01", "vlan_vid": 7, "vlan_pcp": 5}`,
			[]openflow.Match{m(openflow.InPort(3), openflow.EthSrc(openflow.MAC{2, 0, 0, 0, 0, 1}), openflow.VLANVID(7), openflow.VLANPCP(5))},
		},
		{"untagged", `{"vlan_vid": "none"}`, []openflow.Match{m(openflow.NoVLAN())}},
		{"every address", `{"ipv4_dst": "0.0.0.0/0"}`, []openflow.Match{m(ip4)}},
		{"every port", `{"ipv4_dst": "10.0.0.1", "sctp_dst": "1-65535", "ip_ecn": "0x1"}`, everyPort()},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := decode(t, c.json)
			got, faults := f.Parse()
			if len(faults) > 0 || !slices.Equal(got, c.want) {
				t.Errorf("got %v, faults %v, want %v", got, faults, c.want)
			}
		})
	}
}

// everyPort is 1-65535 as masked values: 1, 2-3, 4-7 and so on.
func everyPort() (out []openflow.Match) {
	for bit := range 16 {
		value := uint16(1) << bit
		out = append(out, openflow.MustMatch(ip4, openflow.IPProto(132), openflow.IPECN(1), openflow.IPDst(addr("10.0.0.1")),
			openflow.SCTPDst(value).WithMask(uint64(-value))))
	}
	return out
}

// Each wrong description is refused whole, with the field, what was given, and what
// would be right.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ json, field, value string }{
		{`{}`, "", ""},
		{`{"in_port": 0}`, "in_port", "0"},
		{`{"in_port": "eth0"}`, "in_port", "eth0"},
		{`{"eth_src": "02:00"}`, "eth_src", "02:00"},
		{`{"eth_type": "ipx"}`, "eth_type", "ipx"},
		{`{"eth_type": 100}`, "eth_type", "100"},
		{`{"vlan_vid": 4095}`, "vlan_vid", "4095"},
		{`{"vlan_vid": 7, "vlan_pcp": 8}`, "vlan_pcp", "8"},
		{`{"vlan_pcp": 1}`, "vlan_pcp", "1"},
		{`{"ip_proto": "gre!"}`, "ip_proto", "gre!"},
		{`{"ip_proto": 256}`, "ip_proto", "256"},
		{`{"ip_dscp": 64}`, "ip_dscp", "64"},
		{`{"ip_dscp": -1}`, "ip_dscp", "-1"},
		{`{"ip_dscp": 4.5}`, "ip_dscp", "4.5"},
		{`{"ipv4_dst": "10.0.0.256"}`, "ipv4_dst", "10.0.0.256"},
		{`{"ipv4_dst": "10.0.0.1/24"}`, "ipv4_dst", "10.0.0.1/24"},
		{`{"ipv4_dst": "2001:db8::1"}`, "ipv4_dst", "2001:db8::1"},
		{`{"ipv6_src": "::ffff:10.0.0.1"}`, "ipv6_src", "::ffff:10.0.0.1"},
		{`{"tcp_dst": 0}`, "tcp_dst", "0"},
		{`{"tcp_dst": 65536}`, "tcp_dst", "65536"},
		{`{"tcp_dst": "20-10"}`, "tcp_dst", "20-10"},
		{`{"tcp_dst": 80, "udp_dst": 80}`, "udp_dst", "80"},
		{`{"tcp_dst": 80, "ip_proto": "udp"}`, "tcp_dst", "80"},
		{`{"ipv4_dst": "10.0.0.1", "ipv6_src": "::1"}`, "ipv6_src", "::1"},
		{`{"eth_type": "arp", "tcp_dst": 80}`, "tcp_dst", "80"},
		{`{"icmpv6_type": 1, "ipv4_dst": "10.0.0.1"}`, "icmpv6_type", "1"},
		{`{"tcp_dst": "1-65534", "tcp_src": "1-65534"}`, "", ""},
	} {
		f := decode(t, c.json)
		matches, faults := f.Parse()
		if len(faults) != 1 || matches != nil || faults[0].Field != c.field || faults[0].Want == "" {
			t.Errorf("%s: matches %v, faults %v", c.json, matches, faults)
			continue
		}
		if text, ok := faults[0].Value.(string); ok && text != c.value {
			t.Errorf("%s: value %q", c.json, text)
		}
	}
	var f Flow
	for _, text := range []string{`{"tcp_dst": true}`, `{"tcp_dst": [80]}`, `{"tcp_dst": {"a": 1}}`, `{"tcp_dst": null5}`} {
		if err := json.Unmarshal([]byte(text), &f); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

// A range selects exactly its ports, whatever its ends.
func TestRangesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint32Range(1, 65535).Draw(t, "first")
		last := rapid.Uint32Range(first, 65535).Draw(t, "last")
		port := rapid.Uint32Range(0, 65535).Draw(t, "port")
		hits := 0
		for _, b := range blocks(first, last) {
			if uint16(port)&b.mask == b.value {
				hits++
			}
		}
		want := 0
		if first <= port && port <= last {
			want = 1
		}
		if hits != want {
			t.Fatalf("%d-%d: port %d is in %d blocks", first, last, port, hits)
		}
	})
}

func TestOf(t *testing.T) {
	f := decode(t, `{"ipv4_dst": "10.0.0.0/24", "tcp_dst": "5000-5100", "in_port": 2}`)
	matches, _ := f.Parse()
	h := packet.Headers{
		Layers: packet.Ethernet | packet.IPv4 | packet.TCP, EthType: packet.TypeIPv4, Proto: packet.ProtoTCP,
		Src: addr("10.0.1.1"), Dst: addr("10.0.0.9"), SrcPort: 40000, DstPort: 5100,
	}
	covered := func(port uint32) bool {
		exact := Of(port, &h)
		return slices.ContainsFunc(matches, func(m openflow.Match) bool { return m.Covers(exact) })
	}
	if !covered(2) || covered(3) {
		t.Error("the in-port was not told apart")
	}
	if h.DstPort = 5101; covered(2) {
		t.Error("a port beyond the range was taken")
	}
}

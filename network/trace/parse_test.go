package trace

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestParse(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"tcp,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80,tcp_flags=+syn", "in_port=1 eth_type=0x800 ip_proto=6 ip_src=10.0.0.1 ip_dst=10.0.0.2 tcp_dst=80 tcp_flags=0x2"},
		{"dport=443  tcp6 src=fd00::1\tdst=fd00::2 sport=1", "eth_type=0x86dd ip_proto=6 tcp_src=1 tcp_dst=443 ipv6_src=fd00::1 ipv6_dst=fd00::2"},
		{"ip_src=10.0.0.1", "eth_type=0x800 ip_src=10.0.0.1"},
		{"ip_src=fd00::1,ip_proto=58", "eth_type=0x86dd ip_proto=58 ipv6_src=fd00::1"},
		{"arp,nw_src=10.0.0.1,dst=10.0.0.2,arp_op=2", "eth_type=0x806 arp_op=2 arp_spa=10.0.0.1 arp_tpa=10.0.0.2"},
		{"udp,vlan_pcp=3,dl_vlan=7,nw_tos=184,tp_src=0x35", "eth_type=0x800 vlan_vid=7 vlan_pcp=3 ip_dscp=46 ip_proto=17 udp_src=53"},
		{"nd_target=fd00::1,icmpv6_type=135,icmp6", "eth_type=0x86dd ip_proto=58 icmpv6_type=135 nd_target=fd00::1"},
		{"eth_src=02:00:00:00:00:01,eth_type=0x88cc", "eth_src=02:00:00:00:00:01 eth_type=0x88cc"},
		{"tcp,tcp_flags=syn|ack", "eth_type=0x800 ip_proto=6 tcp_flags=0x12"},
		{"metadata=0xffffffffffffffff", "metadata=0xffffffffffffffff"},
	} {
		d, err := Parse(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if len(d.Said) != len(strings.Fields(tt.want)) {
			t.Errorf("%s: said %v", tt.in, d.Said)
		}
		for _, w := range strings.Fields(tt.want) {
			name, value, _ := strings.Cut(w, "=")
			f, err := openflow.ParseField(name)
			if err != nil {
				t.Fatal(err)
			}
			want, err := parseValue(f, strings.TrimPrefix(value, "="))
			if f.Bytes() == 4 && strings.Contains(value, ".") {
				a := addr(value).As4()
				want, err = openflow.OXM{Field: f}, nil
				copy(want.Value[:], a[:])
			}
			if f == openflow.FieldVLANVID {
				want = openflow.VLANVID(uint16(want.Uint()))
			}
			if got, ok := d.Packet.Get(f); err != nil || !ok || got.Value != want.Value {
				t.Errorf("%s: %v, want %v (%v)", tt.in, got, want, err)
			}
		}
	}
}

func TestParseFillsIn(t *testing.T) {
	d, err := Parse("switch=00000000000000a1,in_port=3,tcp,ttl=9")
	if err != nil || d.At.Switch != 0xa1 || d.At.Port != 3 || d.Packet.TTL != 9 {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, f := range []openflow.Field{openflow.FieldIPv4Src, openflow.FieldTCPDst, openflow.FieldTCPFlags, openflow.FieldIPDSCP, openflow.FieldEthSrc} {
		if o, ok := d.Packet.Get(f); !ok || o.Uint() != 0 || d.Said[f] {
			t.Errorf("%v is %v, %v; want a zero that nobody said", f, o, ok)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct{ in, word, says string }{
		{"", "", "empty"},
		{"tcpp", "tcpp", "want a protocol"},
		{"tcp,nw_src", "nw_src", "field=value"},
		{"tcp,nw_src=", "nw_src=", "field=value"},
		{"tcp=1", "tcp=1", "takes no value"},
		{"tcp,nw_src=10.0.0", "nw_src=10.0.0", "not an IPv4 or IPv6 address"},
		{"tcp,nw_src=fd00::1", "nw_src=fd00::1", "tcp6"},
		{"tcp6,nw_src=10.0.0.1", "nw_src=10.0.0.1", "does not fit"},
		{"tcp,udp", "udp", "contradicts"},
		{"tcp,arp", "arp", "contradicts"},
		{"tcp,tp_dst=65536", "tp_dst=65536", "0 to 65535"},
		{"tcp,tp_dst=80,dport=81", "dport=81", "twice"},
		{"ip,tp_dst=80", "tp_dst=80", "tcp, udp or sctp"},
		{"udp,tcp_flags=syn", "tcp_flags=syn", "ip_proto"},
		{"tcp,tcp_flags=sin", "tcp_flags=sin", "fin, syn"},
		{"tcp,tcp_dst=80,udp_dst=80", "udp_dst=80", "ip_proto"},
		{"in_port=0", "in_port=0", "1 to"},
		{"in_port=x", "in_port=x", "number"},
		{"vlan=4096", "vlan=4096", "0 to 4095"},
		{"vlan_pcp=1", "vlan_pcp=1", "vlan_vid"},
		{"eth_src=02:00", "eth_src=02:00", "MAC"},
		{"switch=a1", "switch=a1", "16 hexadecimal"},
		{"tcp,colour=red", "colour=red", "no field"},
		{"arp,arp_spa=fd00::1", "arp_spa=fd00::1", "IPv4"},
		{"ip,nw_tos=1", "nw_tos=1", "ECN"},
		{"ip,ttl=300", "ttl=300", "0 to 255"},
	} {
		_, err := Parse(tt.in)
		var pe *ParseError
		if !errors.As(err, &pe) || pe.Word != tt.word || !strings.Contains(pe.Error(), tt.says) {
			t.Errorf("%q: %v; want %q to be blamed, saying %q", tt.in, err, tt.word, tt.says)
			continue
		}
		if tt.in[pe.Offset:pe.Offset+len(pe.Word)] != pe.Word {
			t.Errorf("%q: the word is not at %d", tt.in, pe.Offset)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("tcp,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80,tcp_flags=+syn-ack")
	f.Add("switch=00000000000000a1 icmp6 nd_target=fd00::1 icmpv6_type=135")
	f.Add("vlan=5,vlan_pcp=1,nw_tos=4,ttl=1,metadata=0x1,ip_proto=6")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := Parse(s)
		var pe *ParseError
		switch {
		case err == nil:
			_ = d.Packet.String()
			Run(newNet(), ref(1, 1), d.Packet)
		case !errors.As(err, &pe) || pe.Offset < 0 || pe.Offset+len(pe.Word) > len(s) || pe.Detail == "":
			t.Fatalf("%q: imprecise error %v", s, err)
		}
	})
}

package packet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/openflow"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// built holds a frame of every builder, with what tshark says about each.
func built() []struct {
	name   string
	frame  []byte
	tshark string
} {
	a, b := openflow.MAC(macA), openflow.MAC(macB)
	f := Frame{Dst: b, Src: a}
	syn := TCPSegment{
		Src: netip.MustParseAddrPort("10.0.0.1:40000"), Dst: netip.MustParseAddrPort("10.0.0.2:80"),
		Seq: 7, Flags: SYN, Window: 29200, Options: []byte{2, 4, 5, 0xb4},
	}
	syn6 := syn
	syn6.Src, syn6.Dst = netip.MustParseAddrPort("[fd00::1]:40000"), netip.MustParseAddrPort("[fd00::2]:80")
	data := syn
	data.Flags, data.Ack, data.Payload = ACK|PSH, 9, []byte("odd")
	request := AppendARPRequest(nil, a, addr("10.0.0.1"), addr("10.0.0.2"), 5)
	rh, _ := Parse(request)
	sh, _ := Parse(AppendTCP(nil, f, syn6))
	return []struct {
		name   string
		frame  []byte
		tshark string
	}{
		{"ARP request", request, "5||1|10.0.0.1|10.0.0.2|02:00:00:00:00:0a|00:00:00:00:00:00|||||||"},
		{"ARP reply", AppendARPReply(nil, &rh, b), "5||2|10.0.0.2|10.0.0.1|02:00:00:00:00:0b|02:00:00:00:00:0a|||||||"},
		{"solicitation", AppendNeighborSolicitation(nil, a, addr("fe80::1"), addr("fe80::a2"), 0), "|||||||135|fe80::a2||||1|"},
		{"solicitation for an address not yet had", AppendNeighborSolicitation(nil, a, addr("::"), addr("fe80::a2"), 0), "|||||||135|fe80::a2||||1|"},
		{"advertisement", AppendNeighborAdvertisement(nil, f, Advertisement{Target: addr("fd00::1"), MAC: a, To: addr("fd00::2"), Flags: NDSolicited}), "|||||||136|fd00::1||||1|"},
		{"SYN", AppendTCP(nil, f, syn), "|1||||||||0x0002|7|0||1"},
		{"SYN over IPv6", AppendTCP(nil, f, syn6), "|||||||||0x0002|7|0||1"},
		{"data", AppendTCP(nil, f, data), "|1||||||||0x0018|7|9||1"},
		{"reset", AppendReset(nil, &sh), "|||||||||0x0014|0|8||1"},
	}
}

func TestBuiltFramesAgainstTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	var frames [][]byte
	for _, b := range built() {
		frames = append(frames, b.frame)
	}
	args := []string{
		"-r", "-", "-T", "fields", "-E", "separator=|",
		"-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "tcp.relative_sequence_numbers:FALSE",
	}
	for _, f := range []string{
		"vlan.id", "ip.checksum.status", "arp.opcode", "arp.src.proto_ipv4", "arp.dst.proto_ipv4", "arp.src.hw_mac", "arp.dst.hw_mac",
		"icmpv6.type", "_nd", "tcp.flags", "tcp.seq_raw", "tcp.ack_raw", "icmpv6.checksum.status", "tcp.checksum.status",
	} {
		if f == "_nd" {
			f = "icmpv6.nd.ns.target_address"
		}
		args = append(args, "-e", f)
	}
	args = append(args, "-e", "icmpv6.nd.na.target_address", "-e", "_ws.malformed")
	cmd := exec.Command(tshark, args...)
	cmd.Stdin = bytes.NewReader(pcap(frames))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	for i, b := range built() {
		cols := strings.Split(lines[i], "|")
		if len(cols) != 16 {
			t.Fatalf("%s: tshark says %q", b.name, lines[i])
		}
		if cols[15] != "" {
			t.Errorf("%s: tshark finds it malformed", b.name)
		}
		if cols[8] == "" {
			cols[8] = cols[14]
		}
		if got := strings.Join(cols[:14], "|"); got != b.tshark {
			t.Errorf("%s:\ngot  %s\nwant %s", b.name, got, b.tshark)
		}
	}
}

// pcap writes a capture file.
func pcap(frames [][]byte) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = le.AppendUint32(b, 2|4<<16)
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint32(b, 65535)
	b = le.AppendUint32(b, 1)
	for _, f := range frames {
		b = append(b, make([]byte, 8)...)
		b = le.AppendUint32(b, uint32(len(f)))
		b = le.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return b
}

// TestTCPAgainstGopacket checks that TCP frames are byte for byte those of gopacket, and that
// parsing returns what was built.
func TestTCPAgainstGopacket(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		port := func(name string) uint16 { return rapid.Uint16().Draw(rt, name) }
		v6 := rapid.Bool().Draw(rt, "v6")
		src, dst := addr("10.1.2.3"), addr("10.255.0.9")
		if v6 {
			src, dst = addr("2001:db8::1"), addr("fd00:1:2:3:4:5:6:7")
		}
		s := TCPSegment{
			Src: netip.AddrPortFrom(src, port("src")), Dst: netip.AddrPortFrom(dst, port("dst")),
			Seq: rapid.Uint32().Draw(rt, "seq"), Ack: rapid.Uint32().Draw(rt, "ack"),
			Flags: rapid.Uint16Range(0, 0x1ff).Draw(rt, "flags"), Window: port("window"),
			Payload: rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(rt, "payload"),
		}
		got := AppendTCP(nil, Frame{Dst: openflow.MAC(macB), Src: openflow.MAC(macA), VLAN: 9, PCP: 3}, s)
		h, err := Parse(got)
		if err != nil || h.Source() != s.Src || h.Destination() != s.Dst || h.Seq != s.Seq || h.Ack != s.Ack ||
			h.TCPFlags != s.Flags || h.Window != s.Window || h.VLANID != 9 || h.VLANPCP != 3 || !bytes.Equal(got[h.Payload:h.End], s.Payload) {
			rt.Fatalf("read back as %+v, %v", h, err)
		}
		// gopacket pads to the shortest Ethernet frame.
		if want := gopacketTCP(rt, s, v6); !bytes.Equal(got, want[:len(got)]) {
			rt.Fatalf("got  %x\nwant %x", got, want)
		}
	})
}

func gopacketTCP(t *rapid.T, s TCPSegment, v6 bool) []byte {
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(s.Src.Port()), DstPort: layers.TCPPort(s.Dst.Port()), Seq: s.Seq, Ack: s.Ack, Window: s.Window,
		FIN: s.Flags&FIN != 0, SYN: s.Flags&SYN != 0, RST: s.Flags&RST != 0, PSH: s.Flags&PSH != 0, ACK: s.Flags&ACK != 0,
		URG: s.Flags&URG != 0, ECE: s.Flags&ECE != 0, CWR: s.Flags&CWR != 0, NS: s.Flags&NS != 0,
	}
	tag := &layers.Dot1Q{Priority: 3, VLANIdentifier: 9, Type: layers.EthernetTypeIPv4}
	var ip gopacket.SerializableLayer
	if v6 {
		tag.Type = layers.EthernetTypeIPv6
		l := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: s.Src.Addr().AsSlice(), DstIP: s.Dst.Addr().AsSlice()}
		_ = tcp.SetNetworkLayerForChecksum(l)
		ip = l
	} else {
		l := &layers.IPv4{Version: 4, TTL: 64, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolTCP, SrcIP: s.Src.Addr().AsSlice(), DstIP: s.Dst.Addr().AsSlice()}
		_ = tcp.SetNetworkLayerForChecksum(l)
		ip = l
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		ether(layers.EthernetTypeDot1Q), tag, ip, tcp, gopacket.Payload(s.Payload))
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestResetAnswersTheSegment(t *testing.T) {
	for _, tt := range []struct {
		name     string
		in       TCPSegment
		seq, ack uint32
		flags    uint16
	}{
		{"SYN", TCPSegment{Seq: 10, Flags: SYN}, 0, 11, RST | ACK},
		{"data without ACK", TCPSegment{Seq: 10, Payload: []byte("abc")}, 0, 13, RST | ACK},
		{"FIN without ACK", TCPSegment{Seq: 10, Flags: FIN}, 0, 11, RST | ACK},
		{"data", TCPSegment{Seq: 10, Ack: 99, Flags: ACK, Payload: []byte("abc")}, 99, 0, RST},
	} {
		tt.in.Src, tt.in.Dst = netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")
		h, err := Parse(AppendTCP(nil, Frame{Dst: openflow.MAC(macB), Src: openflow.MAC(macA)}, tt.in))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Parse(AppendReset(nil, &h))
		if err != nil || r.Seq != tt.seq || r.Ack != tt.ack || r.TCPFlags != tt.flags || r.Source() != tt.in.Dst || r.EthDst != h.EthSrc {
			t.Errorf("%s: %+v, %v", tt.name, r, err)
		}
	}
}

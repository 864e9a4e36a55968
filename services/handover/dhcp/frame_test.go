package dhcp_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
)

// requestFrame returns a client's message as a frame.
func requestFrame(m *dhcpv4.DHCPv4, src openflow.MAC) []byte {
	return packet.AppendUDP(nil, packet.Frame{Dst: packet.Broadcast, Src: src}, packet.UDPDatagram{
		Src:     netip.AddrPortFrom(netip.IPv4Unspecified(), dhcp.ClientPort),
		Dst:     netip.MustParseAddrPort("255.255.255.255:67"),
		Payload: m.ToBytes(),
	})
}

func parse(frame []byte) (*dhcpv4.DHCPv4, error) {
	h, err := packet.Parse(frame)
	if err != nil {
		return nil, err
	}
	return dhcp.Parse(frame, &h)
}

func TestParse(t *testing.T) {
	b := newBench(t)
	good := requestFrame(b.sign(b.message(dhcpv4.MessageTypeDiscover, mac(4)), mac(4)), mac(4))
	if m, err := parse(good); err != nil || m.MessageType() != dhcpv4.MessageTypeDiscover {
		t.Fatalf("%v, %v", m, err)
	}
	if m, err := parse(append(bytes.Clone(good), 0, 0, 0)); err != nil || m == nil {
		t.Fatalf("with padding: %v", err)
	}
	edit := func(f func([]byte)) func([]byte) []byte {
		return func(b []byte) []byte { f(b); return b }
	}
	const udp, bootp = 34, 42
	for name, c := range map[string]struct {
		spoil func([]byte) []byte
		ours  bool // it is DHCP, but none that a client sends
	}{
		"to another port":     {edit(func(b []byte) { b[udp+3] = 68 }), false},
		"a fragment":          {edit(func(b []byte) { b[20] |= 0x20 }), false},
		"ICMP":                {edit(func(b []byte) { b[23] = packet.ProtoICMP }), false},
		"cut short":           {func(b []byte) []byte { return b[:len(b)-1] }, false},
		"UDP length too long": {edit(func(b []byte) { b[udp+5]++ }), false},
		"UDP length 7":        {edit(func(b []byte) { b[udp+4], b[udp+5] = 0, 7 }), false},
		"UDP without payload": {edit(func(b []byte) { b[udp+4], b[udp+5] = 0, 8 }), true},
		"no cookie":           {edit(func(b []byte) { b[bootp+236] = 0 }), true},
		"a reply":             {edit(func(b []byte) { b[bootp] = 2 }), true},
		"not Ethernet":        {edit(func(b []byte) { b[bootp+1] = 6 }), true},
		"short address":       {edit(func(b []byte) { b[bootp+2] = 5 }), true},
		"long address":        {edit(func(b []byte) { b[bootp+2] = 255 }), true},
		"group address":       {edit(func(b []byte) { b[bootp+28] |= 1 }), true},
		"no address":          {edit(func(b []byte) { clear(b[bootp+28 : bootp+34]) }), true},
		"message type 5":      {edit(func(b []byte) { b[bootp+242] = 5 }), true},
		"option beyond end":   {edit(func(b []byte) { b[bootp+241] = 255 }), true},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := parse(c.spoil(bytes.Clone(good)))
			if err == nil {
				t.Fatalf("parsed %v", m)
			}
			if errors.Is(err, dhcp.ErrNotRequest) == c.ours {
				t.Fatal(err)
			}
		})
	}
}

func TestDecodeRefusesOptionsOfWrongSize(t *testing.T) {
	b := newBench(t)
	for _, o := range []dhcpv4.Option{
		dhcpv4.OptGeneric(dhcpv4.OptionRequestedIPAddress, []byte{10, 8, 0}),
		dhcpv4.OptGeneric(dhcpv4.OptionServerIdentifier, []byte{10, 8, 0, 1, 0}),
		dhcpv4.OptGeneric(dhcpv4.OptionClientIdentifier, make([]byte, 256)),
		dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, make([]byte, 300)),
	} {
		m := b.message(dhcpv4.MessageTypeRequest, mac(1), dhcpv4.WithOption(o))
		if _, err := dhcp.Decode(m.ToBytes()); err == nil {
			t.Errorf("option %v of %d bytes was taken", o.Code, len(o.Value.ToBytes()))
		}
		b.expect(b.handle(m, mac(1), radioA), dhcp.Ignored)
	}
}

func TestOptionsContinueInOtherFields(t *testing.T) {
	b := newBench(t)
	m := b.message(dhcpv4.MessageTypeRequest, mac(1), dhcpv4.WithGeneric(dhcpv4.OptionOptionOverload, []byte{3}))
	raw := m.ToBytes()
	copy(raw[108:], []byte{50, 4, 10, 8, 0, 11, 255})
	copy(raw[44:], []byte{12, 3, 'c', 'a', 'r', 255})
	got, err := dhcp.Decode(raw)
	if err != nil || got.HostName() != "car" || !got.RequestedIPAddress().Equal(ip(11).AsSlice()) {
		t.Fatalf("%v, %v", got, err)
	}
	copy(raw[44:], []byte{12, 200})
	if got, err := dhcp.Decode(raw); err == nil {
		t.Fatalf("an option beyond its field: %v", got)
	}
}

// replies returns a reply of each kind.
func replies(b *bench) []dhcp.Decision {
	relayed := b.rebooting(mac(1), ip(10))
	relayed.GatewayIPAddr = ip(99).AsSlice()
	relayed.UpdateOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(1), []byte("x"))))
	b.must(b.putDevice(deviceAnywhere()))
	return []dhcp.Decision{
		b.handle(b.message(dhcpv4.MessageTypeDiscover, mac(1), dhcpv4.WithBroadcast(true)), mac(1), radioA),
		b.handle(b.rebooting(mac(1), ip(10)), mac(1), radioA),
		b.handle(b.renewing(mac(1), ip(10)), mac(2), radioB),
		b.handle(b.renewing(mac(1), ip(33)), mac(2), radioB),
		b.handle(b.message(dhcpv4.MessageTypeInform, mac(1), dhcpv4.WithClientIP(ip(10).AsSlice())), mac(2), radioB),
		b.handle(relayed, mac(70), relay),
	}
}

func TestFramesAreWhatTheirParserExpects(t *testing.T) {
	b := newBench(t)
	router := openflow.MAC{2, 0xff}
	for _, d := range replies(b) {
		frame := d.Frame(router)
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		if p.ErrorLayer() != nil {
			t.Fatal(p.ErrorLayer().Error())
		}
		eth := p.LinkLayer().(*layers.Ethernet)
		udp := p.TransportLayer().(*layers.UDP)
		if !bytes.Equal(eth.DstMAC, d.To[:]) || !bytes.Equal(eth.SrcMAC, router[:]) {
			t.Fatalf("%v: frame from %v to %v", d.Type, eth.SrcMAC, eth.DstMAC)
		}
		b.must(udp.SetNetworkLayerForChecksum(p.NetworkLayer()))
		if err, bad := p.VerifyChecksums(); err != nil || len(bad) > 0 {
			t.Fatalf("%v: checksums: %v, %v", d.Type, err, bad)
		}
		if dst := map[bool]layers.UDPPort{true: 67, false: 68}[d.ToIP == ip(99)]; udp.SrcPort != 67 || udp.DstPort != dst {
			t.Fatalf("%v: from port %d to %d", d.Type, udp.SrcPort, udp.DstPort)
		}
		m, err := dhcpv4.FromBytes(udp.Payload)
		if err != nil || m.MessageType() != d.Reply.MessageType() {
			t.Fatalf("%v: %v, %v", d.Type, m, err)
		}
	}
}

// TestTsharkAgrees compares our frames with their dissection by an independent implementation.
func TestTsharkAgrees(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	b := newBench(t)
	decisions := replies(b)
	var file bytes.Buffer
	w := pcapgo.NewWriter(&file)
	b.must(w.WriteFileHeader(65536, layers.LinkTypeEthernet))
	for i, d := range decisions {
		frame := d.Frame(openflow.MAC{2, 0xff})
		b.must(w.WritePacket(gopacket.CaptureInfo{Timestamp: start.Add(time.Duration(i) * time.Second), CaptureLength: len(frame), Length: len(frame)}, frame))
	}
	path := filepath.Join(t.TempDir(), "replies.pcap")
	b.must(os.WriteFile(path, file.Bytes(), 0o600))
	out, err := exec.CommandContext(t.Context(), tshark, "-r", path, "-T", "json",
		"-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE").CombinedOutput()
	if at := bytes.IndexByte(out, '['); err != nil || at < 0 {
		t.Fatalf("%v: %s", err, out)
	} else {
		out = out[at:]
	}
	var packets []struct {
		Source struct {
			Layers map[string]json.RawMessage `json:"layers"`
		} `json:"_source"`
	}
	b.must(json.Unmarshal(out, &packets))
	if len(packets) != len(decisions) {
		t.Fatalf("%d packets, want %d", len(packets), len(decisions))
	}
	for i, p := range packets {
		text := string(p.Source.Layers["dhcp"])
		for _, want := range []string{
			`"dhcp.option.dhcp": "` + string('0'+rune(decisions[i].Reply.MessageType())) + `"`,
			`"dhcp.option.dhcp_server_id": "10.8.0.1"`, `"dhcp.cookie": "99.130.83.99"`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("packet %d: tshark does not see %s in %s", i, want, text)
			}
		}
		all := string(out)
		for _, bad := range []string{"_ws.malformed", "_ws.expert", `checksum.status": "0"`} {
			if strings.Contains(all, bad) {
				t.Fatalf("tshark complains (%s): %s", bad, all)
			}
		}
	}
}

func TestUDPChecksumIsNeverZero(t *testing.T) {
	for n := range uint32(1 << 16) {
		payload := binary.BigEndian.AppendUint16(nil, uint16(n))
		f := packet.AppendUDP(nil, packet.Frame{}, packet.UDPDatagram{
			Src: netip.MustParseAddrPort("10.0.0.1:67"), Dst: netip.MustParseAddrPort("10.0.0.2:68"), Payload: payload,
		})
		if f[40] == 0 && f[41] == 0 {
			t.Fatalf("payload %x has no checksum", payload)
		}
	}
}

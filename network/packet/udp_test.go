package packet

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func TestAppendUDPIsWhatAnotherParserReads(t *testing.T) {
	for _, ends := range [][2]string{{"10.0.0.1:67", "10.0.0.2:68"}, {"[2001:db8::1]:9", "[2001:db8::2]:10"}} {
		for size := range 5 {
			d := UDPDatagram{
				Src: netip.MustParseAddrPort(ends[0]), Dst: netip.MustParseAddrPort(ends[1]), Payload: []byte("abcd")[:size],
			}
			frame := AppendUDP(nil, Frame{Dst: Broadcast}, d)
			p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
			udp, ok := p.TransportLayer().(*layers.UDP)
			if !ok || udp.SetNetworkLayerForChecksum(p.NetworkLayer()) != nil {
				t.Fatal(p)
			}
			if err, bad := p.VerifyChecksums(); err != nil || len(bad) > 0 {
				t.Fatalf("%v, %v, %v", p, err, bad)
			}
			if string(udp.Payload) != "abcd"[:size] || uint16(udp.SrcPort) != d.Src.Port() || uint16(udp.DstPort) != d.Dst.Port() {
				t.Fatalf("%v", p)
			}
		}
	}
}

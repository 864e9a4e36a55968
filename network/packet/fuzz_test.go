package packet

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sluice-net/sluice/openflow"
)

// FuzzParse checks that parsing any bytes gives an error, or headers that survive every accessor
// and that agree with gopacket where it reads the same layers.
func FuzzParse(f *testing.F) {
	for _, b := range built() {
		f.Add(b.frame)
	}
	f.Add(make([]byte, 60))
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, err := Parse(frame)
		for _, at := range []int{h.L3, h.L4, h.Payload} {
			if at < 0 || at > len(frame) {
				t.Fatalf("offset %d in a frame of %d bytes: %+v", at, len(frame), h)
			}
		}
		if h.L4 != 0 && h.L4 < h.L3 || h.Payload != 0 && h.Payload < h.L4 {
			t.Fatalf("offsets out of order: %+v", h)
		}
		_, _, _, _ = h.Source(), h.Destination(), h.IsSYN(), h.TCPOptions(frame)
		if _, err := openflow.NewMatch(h.Fields()...); err != nil {
			t.Fatalf("%+v has fields that cannot stand together: %v", h, err)
		}
		if h.Has(TCP) {
			AppendReset(nil, &h)
		}
		if h.Has(ARP) {
			AppendARPReply(nil, &h, h.EthSrc)
		}
		if err == nil && h.Has(TCP) {
			compareTCP(t, frame, &h)
		}
	})
}

func compareTCP(t *testing.T, frame []byte, h *Headers) {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	l, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok || p.ErrorLayer() != nil {
		return // gopacket knows fewer tags and extension headers
	}
	if uint16(l.SrcPort) != h.SrcPort || uint16(l.DstPort) != h.DstPort || l.Seq != h.Seq || l.Ack != h.Ack || l.SYN != (h.TCPFlags&SYN != 0) {
		t.Fatalf("gopacket reads %+v, we %+v", l, h)
	}
}

package match

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// TestHeaderOfStrangePackets reads what no ordinary host sends: it is a flow with a
// match, or none.
func TestHeaderOfStrangePackets(t *testing.T) {
	one, mapped := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("::ffff:10.0.0.1")
	for name, c := range map[string]struct {
		h    packet.Headers
		flow bool
	}{
		"IPv6":                      {packet.Headers{Layers: packet.IPv6, EthType: packet.TypeIPv6, Src: one, Dst: one, Proto: packet.ProtoTCP}, true},
		"a mapped source":           {packet.Headers{Layers: packet.IPv6, EthType: packet.TypeIPv6, Src: mapped, Dst: one}, false},
		"a mapped destination":      {packet.Headers{Layers: packet.IPv6, EthType: packet.TypeIPv6, Src: one, Dst: mapped}, false},
		"mapped addresses":          {packet.Headers{Layers: packet.IPv6, EthType: packet.TypeIPv6, Src: mapped, Dst: mapped}, false},
		"an IP type without header": {packet.Headers{EthType: packet.TypeIPv4}, true},
		"a length for a type":       {packet.Headers{EthType: 40}, true},
		"a group":                   {packet.Headers{Layers: packet.IPv6, EthType: packet.TypeIPv6, EthDst: openflow.MAC{0x33, 0x33}, Src: one, Dst: one}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h, flow := HeaderOf(&c.h)
			if flow != c.flow {
				t.Fatalf("a flow: %v, want %v", flow, c.flow)
			}
			if flow {
				h.Match(1)
			}
		})
	}
}

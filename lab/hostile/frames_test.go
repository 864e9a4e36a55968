package hostile_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/lab/hostile"
	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// TestFramesAreWhatTheyClaimToBe checks that each kind of frame is valid: a network would drop one
// that it cannot parse, and no harm would be done.
func TestFramesAreWhatTheyClaimToBe(t *testing.T) {
	self := hostile.Host{MAC: openflow.MAC{2, 0, 0, 0, 0, 1}, Addr: netip.MustParseAddr("192.0.2.1")}
	victim := hostile.Host{MAC: openflow.MAC{2, 0, 0, 0, 0, 2}, Addr: netip.MustParseAddr("192.0.2.2")}
	ok := map[string]func(h *packet.Headers) bool{
		"arp-claims": func(h *packet.Headers) bool { return h.Has(packet.ARP) && h.EthSrc == self.MAC && h.Src == victim.Addr },
		"mac-claims": func(h *packet.Headers) bool { return h.EthSrc == victim.MAC },
		"arp-questions": func(h *packet.Headers) bool {
			return h.Has(packet.ARP) && h.ARPOp == packet.ARPRequest && h.EthSrc == self.MAC
		},
		"broadcasts":   func(h *packet.Headers) bool { return h.EthDst == packet.Broadcast && h.Has(packet.UDP) },
		"new-hosts":    func(h *packet.Headers) bool { return h.EthSrc != self.MAC && h.EthDst == victim.MAC },
		"dhcp-clients": func(h *packet.Headers) bool { return h.Has(packet.UDP) && h.DstPort == 67 && h.EthSrc != self.MAC },
		"dhcp-server":  func(h *packet.Headers) bool { return h.Has(packet.UDP) && h.DstPort == 68 && h.EthSrc == self.MAC },
		"joins": func(h *packet.Headers) bool {
			return h.IsSYN() && h.DSCP == 11 && h.EthSrc == self.MAC && h.Dst == victim.Addr
		},
		"probes": func(h *packet.Headers) bool { return h.EthDst == discovery.Multicast && h.EthType == packet.TypeLLDP },
	}
	for _, k := range hostile.FrameKinds() {
		t.Run(k.Name, func(t *testing.T) {
			for n := range uint64(4) {
				frame := k.Append(nil, n, self, victim)
				h, err := packet.Parse(frame)
				if err != nil {
					t.Fatalf("frame % x: %v", frame, err)
				}
				if k.Name == "joins" && !packet.MPTCPOf(h.TCPOptions(frame)).Join {
					t.Errorf("frame % x joins nothing", frame)
				}
				if !ok[k.Name](&h) {
					t.Errorf("frame % x is something else: %+v", frame, h)
				}
			}
		})
	}
}

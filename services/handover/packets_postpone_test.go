package handover

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// A device asks by ARP without a sender's address whether a place works. A place whose path to the
// border ports is cut does not answer, although its edge answers all other requests.
func TestPlaceWithoutAWay(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	gw := netip.MustParseAddr("10.8.0.1")
	answered := func(at network.PortRef, sender netip.Addr) bool {
		for len(r.w.sent) > 0 {
			<-r.w.sent
		}
		if v := r.in(at, packet.AppendARPRequest(nil, mac1, sender, gw, 0)); v != network.Stop {
			t.Errorf("verdict %v", v)
		}
		for len(r.w.sent) > 0 {
			f := <-r.w.sent
			var h packet.Headers
			if h.Parse(f.data) == nil && f.at == at && h.ARPOp == packet.ARPReply && h.Src == gw {
				return true
			}
		}
		return false
	}
	nobody := netip.IPv4Unspecified()
	if !answered(edge3, nobody) || !answered(edge5, nobody) {
		t.Error("a place with a way is not alive")
	}
	r.w.connect([]openflow.DatapathID{1, 2, 3, 4, 5}, append(treeLinks[:2:2], treeLinks[6:]...)) // 3 and 4 are cut off
	if answered(edge3, nobody) {
		t.Error("a place without a way is alive")
	}
	if !answered(edge3, ip) {
		t.Error("the device itself is not told its gateway: its connections would end, and the cut may be short")
	}
	if !answered(edge5, nobody) {
		t.Error("another place is not alive")
	}
}

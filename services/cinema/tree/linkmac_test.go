package tree

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// TestLinkMACs checks that every direction of every link of a large network has an address of
// its own, which is locally administered and always the same.
func TestLinkMACs(t *testing.T) {
	has := map[openflow.MAC]network.PortRef{}
	for _, first := range []openflow.DatapathID{0, 0x0000525400123400} { // small numbers, and addresses of a vendor
		for d := range openflow.DatapathID(100) {
			for port := range uint32(48) {
				at := network.PortRef{Switch: first + d + 1, Port: port + 1}
				mac := LinkMAC(at)
				if other, taken := has[mac]; taken {
					t.Errorf("%v and %v have %v", at, other, mac)
				}
				has[mac] = at
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		at := network.PortRef{Switch: openflow.DatapathID(rapid.Uint64().Draw(t, "switch")), Port: rapid.Uint32().Draw(t, "port")}
		mac := LinkMAC(at)
		if mac[0] != 2 || mac != LinkMAC(at) {
			t.Fatalf("%v has %v, and then %v", at, mac, LinkMAC(at))
		}
	})
}

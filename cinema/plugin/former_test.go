package plugin

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// A channel goes around a switch that is not connected any more, and which still has packets for
// where it led: the former way stays until they have arrived. It does not where the gateway's
// port has no room for both, or where it is gone.
func TestFormerWayStays(t *testing.T) {
	for name, x := range map[string]struct {
		gate uint64
		gone bool
		want int
	}{
		"there": {1e9, false, 3}, "no room": {5e6, false, 2}, "gone": {1e9, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.net.set(func() { b.net.gate = x.gate })
			b.net.SetTopology(triangle(2, [2]openflow.DatapathID{1, 3}))
			b.mustWant(b.west, 1, 6000, "a")
			b.mustWant(b.west, 3, 6001, "a")
			b.expect("a", 2, "10.0.0.3:6000", "10.0.0.3:6001")
			b.net.SetTopology(triangle(3))
			b.mustWant(b.east, 2, 6000, "a")
			b.expect("a", 2, "10.0.0.2:6000", "10.0.0.3:6000", "10.0.0.3:6001")
			if x.gone {
				b.net.SetTopology(triangle(4, [2]openflow.DatapathID{1, 2}, [2]openflow.DatapathID{2, 3}))
			} else {
				b.service.NetworkChanged(network.Event{Kind: network.SwitchDown, Switch: 2})
				left := triangle(4, [2]openflow.DatapathID{1, 2}, [2]openflow.DatapathID{2, 3})
				b.net.SetTopology(topology.New(4, []openflow.DatapathID{1, 3}, left.Links))
			}
			if err := b.service.Channels.Reconcile(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			if _, n := b.copies("a"); n != x.want {
				t.Errorf("it goes over %d links, want %d", n, x.want)
			}
			b.eventually(fmt.Sprintf("it goes over %d links", min(x.want, 2)), func() bool {
				_, n := b.copies("a")
				return n == min(x.want, 2)
			})
		})
	}
}

package cinema

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// TestSwitchReconnected checks that the tree keeps a reconnected switch whose links are not known yet,
// and that this ends when they should be known and are not.
func TestSwitchReconnected(t *testing.T) {
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "a")
	b.service.NetworkChanged(network.Event{Kind: network.SwitchDown, Switch: 2})
	b.net.SetTopology(topology.New(2, []openflow.DatapathID{1, 2, 3}, nil))
	look := func() {
		t.Helper()
		if err := unwritten([]error{b.service.Channels.Reconcile(t.Context(), "a")}); err != nil {
			t.Fatal(err)
		}
	}
	look() // before the service learns that the switch is back
	b.expect("a", 1, "10.0.0.2:6000")
	b.service.NetworkChanged(network.Event{Kind: network.SwitchUp, Switch: 2})
	look()
	b.expect("a", 1, "10.0.0.2:6000")
	b.service.trees.mu.Lock()
	b.service.trees.linksKnownAt[2] = time.Now()
	b.service.trees.mu.Unlock()
	look()
	b.expect("a", 0)
	b.service.NetworkChanged(network.Event{Kind: network.SwitchUp, Switch: 3})
	if n := len(b.service.trees.linksKnownAt); n > 0 {
		t.Errorf("%d switches are remembered", n)
	}
}

package cinema

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// TestShorterWay checks that a channel moves to a shorter path when the links have been stable
// for a while, and not before, and that packets in flight still arrive.
func TestShorterWay(t *testing.T) {
	b := newBench(t)
	b.net.SetTopology(triangle(2, [2]openflow.DatapathID{1, 3}))
	b.mustWant(b.west, 1, 6000, "a")
	b.service.NetworkChanged(network.Event{Kind: network.LinkUp})
	b.net.SetTopology(triangle(3))
	b.moves([][2]int{{3, 2}}) // not yet
	b.service.trees.mu.Lock()
	b.service.trees.linksChangedAt = time.Now().Add(-stableAfter)
	b.service.trees.mu.Unlock()
	b.moves([][2]int{{4, 2}, {2, 1}})
	if x := get[[]TreeInfo](b, "trees")[0]; len(x.Links) != 1 || len(x.Former) != 0 {
		t.Errorf("%+v", x)
	}
}

package cinema

import (
	"slices"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// written returns a function that lists what has been written of the watched channel since
// then: the numbers of rules, and of links to which they forward.
func (b *harness) written() (all func() [][2]int) {
	var mu sync.Mutex
	var seen [][2]int
	note := func(p network.Program) error {
		mu.Lock()
		defer mu.Unlock()
		links := 0
		for _, r := range p.Rules {
			for _, a := range r.Actions {
				if a.Type == openflow.ActionOutput {
					links++
				}
			}
		}
		if x := [2]int{len(p.Rules), links}; x[0] > 0 && (len(seen) == 0 || seen[len(seen)-1] != x) {
			seen = append(seen, x)
		}
		return nil
	}
	b.ledger.refuse.Store(&note)
	return func() [][2]int {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// TestOldTreeDrains checks that a channel is rerouted around a disconnected switch, and that
// the old tree stays until packets in flight have arrived. It does not stay if the gateway's
// port has no room for both, or if the old tree is broken.
func TestOldTreeDrains(t *testing.T) {
	for name, x := range map[string]struct {
		gate uint64
		gone bool
		want [][2]int
	}{
		"there":   {1e9, false, [][2]int{{4, 3}, {3, 2}}},
		"no room": {5e6, false, [][2]int{{3, 2}}},
		"gone":    {1e9, true, [][2]int{{2, 1}}},
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
			b.moves(x.want)
		})
	}
}

// TestPrunedBranchDrains checks that a branch without viewers drains without copies, so that no
// guard drops packets in flight. Open vSwitch would otherwise use that decision for viewers who
// return.
func TestPrunedBranchDrains(t *testing.T) {
	b := newBench(t)
	b.net.SetTopology(triangle(3))
	b.mustWant(b.west, 1, 6000, "a")
	b.mustWant(b.east, 2, 6001, "a")
	b.expect("a", 2, "10.0.0.2:6001", "10.0.0.3:6000")
	written := b.written()
	b.mustWant(b.east, 2, 6001)
	b.eventually("the branch is gone", func() bool { return slices.Equal(written(), [][2]int{{3, 1}, {2, 1}}) })
	b.mustWant(b.west, 1, 6000)
	b.eventually("only the guards are left", b.onlyGuards)
	if got, want := written(), [][2]int{{3, 1}, {2, 1}, {1, 0}}; !slices.Equal(got, want) {
		t.Errorf("rules and links %v, want %v", got, want)
	}
}

// TestBackByAnotherPath checks that a viewer who returns to a pruned branch by another path gets
// the channel only by that path.
func TestBackByAnotherPath(t *testing.T) {
	b := newBench(t)
	b.net.SetTopology(triangle(3, [2]openflow.DatapathID{1, 2}))
	b.mustWant(b.west, 1, 6000, "a")
	b.mustWant(b.east, 2, 6001, "a")
	b.expect("a", 2, "10.0.0.2:6001", "10.0.0.3:6000")
	written := b.written()
	b.mustWant(b.east, 2, 6001)
	b.net.SetTopology(triangle(4, [2]openflow.DatapathID{2, 3}))
	b.mustWant(b.east, 2, 6001, "a")
	b.expect("a", 2, "10.0.0.2:6001", "10.0.0.3:6000")
	if got, want := written(), [][2]int{{3, 1}, {3, 2}}; !slices.Equal(got, want) {
		t.Errorf("rules and links %v, want %v", got, want)
	}
}

// moves reconciles channel a until what is written of it is as wanted.
func (b *harness) moves(want [][2]int) {
	b.t.Helper()
	written := b.written()
	if err := unwritten([]error{b.service.Channels.Reconcile(b.t.Context(), "a")}); err != nil {
		b.t.Fatal(err)
	}
	b.eventually("all is written", func() bool { return len(written()) >= len(want) })
	if err := unwritten([]error{b.service.Channels.Reconcile(b.t.Context(), "a")}); err != nil {
		b.t.Fatal(err)
	}
	if got := written(); !slices.Equal(got, want) {
		b.t.Errorf("rules and links: %v, want %v", got, want)
	}
}

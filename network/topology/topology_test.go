package topology

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/openflow"
)

func ref(s, p int) PortRef { return PortRef{Switch: openflow.DatapathID(s), Port: uint32(p)} }

// both returns the two directions of a link.
func both(a, b PortRef, latency time.Duration, capacity, used uint64) []Link {
	return []Link{
		{From: a, To: b, Latency: latency, Capacity: capacity, Used: used},
		{From: b, To: a, Latency: latency, Capacity: capacity, Used: used},
	}
}

// square: 1-2-4 is slow and wide, 1-3-4 fast and busy, 1-4 direct and narrow.
func square() *Topology {
	const mbit = 1_000_000
	return New(7, []openflow.DatapathID{4, 3, 2, 1, 1}, slices.Concat(
		both(ref(1, 2), ref(2, 1), 20*time.Millisecond, 1000*mbit, 0),
		both(ref(2, 4), ref(4, 2), 20*time.Millisecond, 1000*mbit, 100*mbit),
		both(ref(1, 3), ref(3, 1), time.Millisecond, 1000*mbit, 990*mbit),
		both(ref(3, 4), ref(4, 3), time.Millisecond, 1000*mbit, 990*mbit),
		both(ref(1, 4), ref(4, 1), 100*time.Millisecond, 10*mbit, 0),
		both(ref(1, 9), ref(9, 9), 0, 0, 0), // switch 9 is not connected
	))
}

func via(p Path) (out []openflow.DatapathID) {
	for _, h := range p.Hops {
		out = append(out, h.Switch)
	}
	return out
}

func TestMetrics(t *testing.T) {
	top := square()
	for _, tt := range []struct {
		m    Metric
		want []openflow.DatapathID
	}{
		{MetricHops, []openflow.DatapathID{1, 4}},
		{MetricLatency, []openflow.DatapathID{1, 3, 4}},
		{MetricUtilisation, []openflow.DatapathID{1, 4}},
		{MetricCapacity, []openflow.DatapathID{1, 2, 4}},
	} {
		p, ok := top.Path(ref(1, 100), ref(4, 100), tt.m)
		if !ok || !slices.Equal(via(p), tt.want) {
			t.Errorf("%v: %v, want %v", tt.m, via(p), tt.want)
		}
	}
	p, _ := top.Path(ref(1, 100), ref(4, 200), MetricLatency)
	want := []Hop{{1, 100, 3}, {3, 1, 4}, {4, 3, 200}}
	if !slices.Equal(p.Hops, want) || p.Latency != 2*time.Millisecond || math.Abs(p.Cost-0.002) > 1e-12 {
		t.Errorf("%+v, want %v in 2ms", p, want)
	}
	if p, ok := top.Path(ref(1, 1), ref(1, 2), MetricHops); !ok || !slices.Equal(p.Hops, []Hop{{1, 1, 2}}) {
		t.Errorf("within a switch: %+v, %v", p, ok)
	}
	if _, ok := top.Path(ref(1, 1), ref(9, 1), MetricHops); ok {
		t.Error("there is a path to a switch that is not connected")
	}
}

func TestManyPaths(t *testing.T) {
	top := square()
	if ps := top.KPaths(ref(1, 100), ref(4, 100), 5, MetricLatency); len(ps) != 3 || ps[0].Latency != 2*time.Millisecond || ps[2].Latency != 100*time.Millisecond {
		t.Errorf("k shortest: %+v", ps)
	}
	if ps := top.DisjointPaths(ref(1, 100), ref(4, 100), 2, MetricLatency); len(ps) != 2 || !slices.Equal(via(ps[1]), []openflow.DatapathID{1, 2, 4}) {
		t.Errorf("disjoint: %+v", ps)
	}
}

func TestEdges(t *testing.T) {
	top := square()
	if top.IsEdge(ref(1, 2)) || !top.IsEdge(ref(1, 9)) || !top.IsEdge(ref(1, 100)) {
		t.Error("inner ports are those of links between connected switches")
	}
	if l, ok := top.LinkFrom(ref(1, 2)); !ok || l.To != ref(2, 1) {
		t.Errorf("link %v, %v", l, ok)
	}
	if !slices.Equal(top.Switches, []openflow.DatapathID{1, 2, 3, 4}) || top.Has(9) {
		t.Errorf("switches %v", top.Switches)
	}
}

func TestParseMetric(t *testing.T) {
	for m := MetricHops; m <= MetricCapacity; m++ {
		if got, err := ParseMetric(m.String()); err != nil || got != m {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	if _, err := ParseMetric("speed"); err == nil {
		t.Error("an unknown metric is accepted")
	}
}

// TestTree checks that the tree joins what two-way links join, has no loop and prefers the fast
// links, and that its ports are the two ends of links.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "switches")
		var ids []openflow.DatapathID
		for s := 1; s <= n; s++ {
			ids = append(ids, openflow.DatapathID(s))
		}
		var links, twoWay []Link
		for i := range rapid.IntRange(0, 14).Draw(t, "links") {
			a, b := rapid.IntRange(1, n).Draw(t, "a"), rapid.IntRange(1, n).Draw(t, "b")
			l := both(ref(a, 2*i+1), ref(b, 2*i+2), 0, uint64(rapid.IntRange(1, 3).Draw(t, "speed"))*1e6, 0)
			if rapid.IntRange(0, 4).Draw(t, "one way") == 0 {
				links = append(links, l[0])
				continue
			}
			links, twoWay = append(links, l...), append(twoWay, l...)
		}
		top := New(1, ids, links)
		var tree []Link
		for _, l := range top.Links {
			if top.OnTree(l.From) {
				if !top.OnTree(l.To) {
					t.Fatalf("%v is on the tree, %v is not", l.From, l.To)
				}
				tree = append(tree, l)
			}
		}
		ports := 0
		for _, s := range ids {
			ports += len(top.TreePorts(s))
		}
		if ports != len(tree) {
			t.Fatalf("%d tree ports, %d directions of tree links", ports, len(tree))
		}
		pruned, whole := New(1, ids, tree), New(1, ids, twoWay)
		parts := map[openflow.DatapathID]bool{}
		for _, a := range ids {
			first := a
			for _, b := range ids {
				_, reached := pruned.Path(ref(int(a), 99), ref(int(b), 99), MetricHops)
				_, reachable := whole.Path(ref(int(a), 99), ref(int(b), 99), MetricHops)
				if reached != reachable {
					t.Fatalf("from %v to %v: by the tree %v, by links %v", a, b, reached, reachable)
				}
				if reached && b < first {
					first = b
				}
			}
			parts[first] = true
		}
		if edges := len(tree) / 2; edges != n-len(parts) {
			t.Fatalf("%d links join %d switches in %d parts: that has a loop", edges, n, len(parts))
		}
	})
}

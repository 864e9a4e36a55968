package topology

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/openflow"
)

// TestFan checks that paths from one switch are shortest paths which part once and never meet
// again, and that LinksFrom and LinkFrom agree.
func TestFan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "switches")
		var ids []openflow.DatapathID
		for s := 1; s <= n; s++ {
			ids = append(ids, openflow.DatapathID(s))
		}
		var links []Link
		for i := range rapid.IntRange(0, 16).Draw(t, "links") {
			a, b := rapid.IntRange(1, n).Draw(t, "a"), rapid.IntRange(1, n).Draw(t, "b")
			l := both(ref(a, 2*i+1), ref(b, 2*i+2), 0, 0, 0)
			links = append(links, l[:rapid.IntRange(1, 2).Draw(t, "directions")]...)
		}
		top := New(1, ids, links)
		total := 0
		for _, s := range ids {
			out := top.LinksFrom(s)
			total += len(out)
			for _, l := range out {
				if found, ok := top.LinkFrom(l.From); !ok || l.From.Switch != s || found != l {
					t.Fatalf("links from %v: %v", s, out)
				}
			}
		}
		if total != len(top.Links) {
			t.Fatalf("%d links leave switches, there are %d", total, len(top.Links))
		}
		from := ref(rapid.IntRange(1, n).Draw(t, "from"), 99)
		before := map[openflow.DatapathID]Hop{} // the hop by which a switch is reached
		for _, to := range ids {
			p, ok := top.FanPath(from, ref(int(to), 98))
			want, reachable := top.Path(from, ref(int(to), 98), MetricHops)
			d, near := top.Distance(from.Switch, to)
			if ok != reachable || near != ok {
				t.Fatalf("to %v: %v, %v, by search %v", to, ok, near, reachable)
			}
			if !ok {
				continue
			}
			if len(p.Hops) != len(want.Hops) || d != len(p.Hops)-1 {
				t.Fatalf("to %v: %v at distance %d, by search %v", to, p.Hops, d, want.Hops)
			}
			for i, h := range p.Hops[1:] {
				if old, known := before[h.Switch]; known && old != p.Hops[i] {
					t.Fatalf("%v is reached by %v and by %v", h.Switch, old, p.Hops[i])
				}
				before[h.Switch] = p.Hops[i]
			}
		}
		if i, ok := top.Index(from.Switch); !ok || top.Switches[i] != from.Switch || slices.Index(top.Switches, from.Switch) != i {
			t.Fatalf("index %d, %v", i, ok)
		}
		if _, ok := top.FanPath(ref(77, 1), from); ok || top.LinksFrom(77) != nil {
			t.Fatal("a switch that is not there has paths")
		}
	})
}

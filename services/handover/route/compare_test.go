package route

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// A change affects only switches from the join to the old and the new edge, and no rules of other
// devices.
func TestDifferenceIsBelowTheJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := anyTopology(t)
		want := Want{IP: device, Home: home, Borders: anyBorders(t, top)[:1]}
		plan := func(places ...Place) Plan {
			want.Places = places
			p, err := NewPlan(top, want)
			unlessUnreachable(t, err)
			return p
		}
		a, b := anyPlace(t, top, want.Borders), anyPlace(t, top, want.Borders)
		old, now := plan(a), plan(b)
		c := Compare(old, now)
		below := func(sw openflow.DatapathID, ways ...[]network.Hop) bool {
			for _, w := range ways {
				if slices.ContainsFunc(w, func(h network.Hop) bool { return h.Switch == sw }) {
					return true
				}
			}
			return false
		}
		for _, sw := range slices.Concat(c.Written, c.Cleared) {
			if !below(sw, c.Branch, c.Gone, old.Up, now.Up) {
				t.Fatalf("%v has a change, the branch is %v, the old one %v", sw, c.Branch, c.Gone)
			}
			if symmetric(top) && !below(sw, c.Branch, c.Gone) {
				t.Fatalf("%v has a change above the join %v", sw, c.Join)
			}
		}
		if len(c.Branch) > 0 && c.Branch[0].Switch != c.Join || len(c.Gone) > 0 && c.Gone[0].Switch != c.Join {
			t.Fatalf("join %v, branch %v, gone %v", c.Join, c.Branch, c.Gone)
		}
		sameDifference(t, &old, &now, c)
		both := plan(a, b)
		sameDifference(t, &old, &both, Compare(old, both))
	})
}

func symmetric(top *network.Topology) bool {
	for _, l := range top.Links {
		if back, ok := top.LinkFrom(l.To); !ok || back.To != l.From {
			return false
		}
	}
	return true
}

// sameDifference compares a change with the difference of the programs.
func sameDifference(t *rapid.T, old, now *Plan, c Change) {
	t.Helper()
	was, is := rules(old), rules(now)
	var written, cleared []openflow.DatapathID
	for k, r := range is {
		if o, ok := was[k]; !ok || !slices.Equal(o.Actions, r.Actions) {
			written = append(written, k.sw)
		}
	}
	for k := range was {
		if _, ok := is[k]; !ok {
			cleared = append(cleared, k.sw)
		}
	}
	cleared = slices.DeleteFunc(cleared, func(sw openflow.DatapathID) bool { return slices.Contains(written, sw) })
	set := func(s []openflow.DatapathID) []openflow.DatapathID {
		s = slices.Clone(s)
		slices.Sort(s)
		return slices.Compact(s)
	}
	if !slices.Equal(set(written), set(c.Written)) || !slices.Equal(set(cleared), set(c.Cleared)) {
		t.Fatalf("written %v, cleared %v; the programs say %v, %v", c.Written, c.Cleared, set(written), set(cleared))
	}
}

// Packets between two devices turn where their paths meet, wherever both are, and never loop while
// one of them moves.
func TestDevicesReachEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := anyTopology(t)
		if !symmetric(top) {
			t.Skip("links of one direction")
		}
		borders := anyBorders(t, top)
		there := anyEdge(t, top)
		there.MAC = homeToo
		o, err := NewPlan(top, Want{IP: other, Home: homeToo, Borders: borders, Places: []Place{there}})
		unlessUnreachable(t, err)
		if len(o.Unreached) > 0 {
			t.Skip("a network in parts")
		}
		want := Want{IP: device, Home: home, Borders: borders}
		a, b := anyEdge(t, top), anyEdge(t, top) // a border that is a place is not used as a border
		want.Places = []Place{a}
		old, err := NewPlan(top, want)
		unlessUnreachable(t, err)
		want.Places = []Place{a, b}
		both, err := NewPlan(top, want)
		unlessUnreachable(t, err)
		want.Places = []Place{b}
		now, err := NewPlan(top, want)
		unlessUnreachable(t, err)
		packet := ip(homeToo, home, other, device)
		for _, p := range []*Plan{&old, &both, &now} {
			w := load(top, p, &o)
			got, err := w.send(there.At, packet)
			if err != nil || p.want.Places[0].count(got) != 1 {
				t.Fatalf("to %v: %v, %v", p.want.Places, got, err)
			}
		}
		for _, step := range slices.Concat(Steps(old, both), Steps(both, now)) {
			writing, deleting := states(t, &step, losing(&old, &step.Plan))
			for _, s := range slices.Concat(writing, deleting) {
				w := s.world(top, &old, &step.Plan)
				for _, r := range o.Program.Rules {
					w.write(r)
				}
				if _, err := w.send(there.At, packet); err != nil {
					t.Fatalf("%v: %v", s, err)
				}
			}
			old = step.Plan
		}
	})
}

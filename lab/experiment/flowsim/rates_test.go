package flowsim

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// newRates returns rates with links of the given capacities.
func newRates(capacity ...float64) *rates {
	r := &rates{links: make([]link, len(capacity)), changed: func(*subflow) {}}
	for i, c := range capacity {
		r.links[i].capacity = c
	}
	return r
}

// TestSettle compares rates with those that were computed by hand.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name     string
		capacity []float64
		paths    [][]int
		want     []float64
	}{
		{"alone", []float64{1, 3}, [][]int{{0, 1}}, []float64{1}},
		{"a third each", []float64{1}, [][]int{{0}, {0}, {0}}, []float64{1. / 3, 1. / 3, 1. / 3}},
		// One subflow uses both links, and one uses each: all have half.
		{"parking lot", []float64{1, 1}, [][]int{{0, 1}, {0}, {1}}, []float64{.5, .5, .5}},
		// Three share the first link. The one that also uses the second link leaves the rest of
		// that.
		{"what others leave", []float64{1, 1}, [][]int{{0}, {0}, {0, 1}, {1}}, []float64{1. / 3, 1. / 3, 1. / 3, 2. / 3}},
		// The narrow link limits two subflows, and the third gets the rest of the wide link.
		{"narrow and wide", []float64{1, 4}, [][]int{{0, 1}, {0, 1}, {1}}, []float64{.5, .5, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRates(c.capacity...)
			var all []*subflow
			for _, links := range c.paths { // one by one, because each may change the rates of those before
				s := &subflow{weight: 1, links: links}
				r.enter(s)
				r.settle()
				all = append(all, s)
			}
			for i, s := range all {
				if math.Abs(s.rate-c.want[i]) > 1e-9 {
					t.Errorf("subflow %d has %v, want %v", i, s.rate, c.want[i])
				}
			}
			for _, s := range all[1:] {
				r.leave(s)
				r.settle()
			}
			if want := slices.Min(c.capacity); math.Abs(all[0].rate-want) > 1e-9 {
				t.Errorf("the first one alone has %v, want %v", all[0].rate, want)
			}
		})
	}
}

// TestMaxMin checks that whatever subflows are added and removed, and however their weights change,
// no link carries more than its capacity, and each subflow has a full link on which none has more
// for its weight.
func TestMaxMin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRates(rapid.SliceOfN(rapid.Float64Range(0.1, 10), 1, 12).Draw(t, "capacity")...)
		number := rapid.IntRange(0, len(r.links)-1)
		weight := rapid.SampledFrom([]float64{1, 0.5, 1. / 3, 0.125})
		var all []*subflow
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(all) > 0 && rapid.IntRange(0, 2).Draw(t, "leaves") == 0 {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				r.leave(all[i])
				all = slices.Delete(all, i, i+1)
			}
			if len(all) > 0 && rapid.IntRange(0, 2).Draw(t, "weighs") == 0 {
				r.setWeight(rapid.SampledFrom(all).Draw(t, "whose"), weight.Draw(t, "weight"))
			}
			for range rapid.IntRange(0, 3).Draw(t, "come") {
				s := &subflow{weight: weight.Draw(t, "weight"), links: rapid.SliceOfNDistinct(number, 1, min(6, len(r.links)), rapid.ID).Draw(t, "links")}
				r.enter(s)
				all = append(all, s)
			}
			r.settle()
			maxMin(t, r, all)
		}
	})
}

// maxMin checks rates against their definition, from the subflows' links alone.
func maxMin(t rapid.TB, r *rates, all []*subflow) {
	load, most := make([]float64, len(r.links)), make([]float64, len(r.links))
	for _, s := range all {
		for _, l := range s.links {
			load[l] += s.rate
			most[l] = max(most[l], s.rate/s.weight)
		}
	}
	for l := range r.links {
		if load[l] > r.links[l].capacity+1e-7 {
			t.Fatalf("link %d carries %v of %v", l, load[l], r.links[l].capacity)
		}
	}
	for i, s := range all {
		if !slices.ContainsFunc(s.links, func(l int) bool {
			return load[l] > r.links[l].capacity-1e-7 && s.rate/s.weight > most[l]-1e-7
		}) {
			t.Fatalf("subflow %d of links %v has %v and no bottleneck", i, s.links, s.rate)
		}
	}
}

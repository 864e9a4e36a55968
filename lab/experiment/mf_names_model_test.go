package experiment

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestDrawLookups checks that the same seed draws the same paths, and that more replicas never make
// a look-up slower.
func TestDrawLookups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		draw := func() [][]modelPath { return drawLookups(rand.New(rand.NewPCG(seed, 1)), 100, 50, 5) }
		all, again := draw(), draw()
		d := delays{between: rapid.Float64Range(1, 100).Draw(t, "between"), within: rapid.Float64Range(0.1, 20).Draw(t, "within"), spread: rapid.Float64Range(0.1, 2).Draw(t, "spread")}
		before := d.lookups(all, 1)
		for k := 1; k <= 5; k++ {
			got := d.lookups(all, k)
			if got != d.lookups(again, k) {
				t.Fatalf("K=%d: %v, then %v", k, got, d.lookups(again, k))
			}
			if got.mean > before.mean || got.median > before.median || got.p95 > before.p95 {
				t.Fatalf("K=%d: %v, with less: %v", k, got, before)
			}
			before = got
		}
	})
}

// TestFitDelays checks that fitting finds the delays that have produced the figures, or others that
// produce them as well.
func TestFitDelays(t *testing.T) {
	all := drawLookups(rand.New(rand.NewPCG(1, 2)), 500, 2000, 1)
	for _, made := range []delays{{60, 6, 1}, {30, 10, 1.5}, {80, 2, 0.7}} {
		want := made.lookups(all, 1)
		d := fitDelays(all, want)
		if got := d.lookups(all, 1); got.off(want) > modelFit {
			t.Errorf("%+v makes %v; %+v, which is fitted to that, %v", made, want, d, got)
		}
	}
}

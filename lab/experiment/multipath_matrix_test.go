package experiment

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestMatrix checks that each permutation makes every host send once and receive once, to another
// rack, and that the shares and gaps are the dissertation's.
func TestMatrix(t *testing.T) {
	for _, m := range []trafficMatrix{matrix1, matrix2} {
		const k, hosts = 6, 54
		all := m.flows(rand.New(rand.NewPCG(1, 2)), k, matrixFlows, 1)
		if len(all) != matrixFlows {
			t.Fatalf("%s: %d flows", m.name, len(all))
		}
		small := 0
		for round := range slices.Chunk(all, hosts) {
			var from, to [hosts]int
			for _, f := range round {
				from[f.from]++
				to[f.to]++
				if f.from/(k/2) == f.to/(k/2) {
					t.Errorf("%s: %d sends to %d of its own rack", m.name, f.from, f.to)
				}
				if !f.large {
					small++
				}
			}
			if slices.Max(from[:]) != 1 || slices.Min(from[:]) != 1 || slices.Max(to[:]) != 1 || slices.Min(to[:]) != 1 {
				t.Errorf("%s: not a permutation: %v to %v", m.name, from, to)
			}
		}
		if share := float64(small) / matrixFlows; share < m.small-0.05 || share > m.small+0.05 {
			t.Errorf("%s: %.2f are small", m.name, share)
		}
		last, faster := all[len(all)-1], m.flows(rand.New(rand.NewPCG(1, 2)), k, matrixFlows, 4)
		if mean := last.start / (matrixFlows - 1); mean < 700*time.Millisecond || mean > 800*time.Millisecond {
			t.Errorf("%s: %v between flows", m.name, mean)
		}
		if f := faster[len(all)-1]; f.to != last.to || (f.work-last.work/4).Abs() > time.Millisecond || (f.start-last.start/4).Abs() > time.Millisecond {
			t.Errorf("%s: at pace 4 %+v, at 1 %+v", m.name, f, last)
		}
	}
}

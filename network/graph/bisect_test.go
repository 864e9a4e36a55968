package graph

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestWidestWithinOneBound checks that the widest path within one bound is exact whatever the
// limit of labels; only the choice among paths of that width depends on it.
func TestWidestWithinOneBound(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	c, found := class{objective: "w", bounds: "d"}, 0
	for range small {
		n := newNet(r, 2+r.IntN(6), r.IntN(17), 5)
		p := n.problem(r, c)
		s, err := n.g.Solve(p)
		n.check(t, p, s, err)
		if err != nil {
			continue
		}
		found++
		p.Limit.Labels = 1
		limited, err := n.g.Solve(p)
		if err != nil || !limited.Exact || limited.Value != s.Value {
			t.Fatalf("with one label: %+v, %v, want %+v", limited, err, s)
		}
		n.checkPath(t, p, limited)
	}
	if found < small/10 {
		t.Errorf("only %d have a path, the test says little", found)
	}
}

// TestWidestWithinOneBoundSaysItsGap checks that without time the answer is a path that meets
// the bound, with a bound on how much wider the best one may be.
func TestWidestWithinOneBoundSaysItsGap(t *testing.T) {
	const side = 20
	g, width, delay := opposed(side)
	end := side*side - 1
	least, _ := g.ShortestPath(0, end, delay)
	p := Problem{To: end, Cost: delay, Width: width, Widest: true, Bounds: []Bound{{delay, math.Floor(1.2 * least.Cost)}}}
	best, err := g.Solve(p)
	if err != nil || !best.Exact {
		t.Fatalf("without a limit: %+v, %v", best, err)
	}
	p.Limit.Time = time.Nanosecond
	s, err := g.Solve(p)
	if err != nil || s.Exact || s.Value > best.Value || s.Bound < best.Value || sum(delay, s.Path.Arcs) > p.Bounds[0].Max {
		t.Errorf("%v to %v (%v), best is %v", s.Value, s.Bound, err, best.Value)
	}
}

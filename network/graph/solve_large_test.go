package graph

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gonum.org/v1/gonum/graph/path"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/sluice-net/sluice/internal/race"
)

// metro returns a large random graph with whole-number delays, jitters and widths.
func metro(nodes, arcs int) (g *Graph, delay, jitter, width, hops Weights) {
	g, _, _ = large(nodes, arcs)
	r := rand.New(rand.NewPCG(7, 8))
	draw := func(low, most int) Weights {
		w := make(Weights, arcs)
		for i := range w {
			w[i] = float64(low + r.IntN(most-low))
		}
		return w
	}
	return g, draw(100, 10_000), draw(10, 5000), draw(0, 1000), draw(1, 2)
}

// opposed returns a grid whose cheap arcs are the slow ones: the hard case.
func opposed(side int) (g *Graph, cost, delay Weights) {
	r := rand.New(rand.NewPCG(9, 10))
	var arcs []Arc
	add := func(a, b int) {
		for _, arc := range []Arc{{a, b}, {b, a}} {
			c := float64(1 + r.IntN(1000))
			arcs, cost, delay = append(arcs, arc), append(cost, c), append(delay, 1001-c)
		}
	}
	for y := range side {
		for x := range side {
			if x+1 < side {
				add(y*side+x, y*side+x+1)
			}
			if y+1 < side {
				add(y*side+x, (y+1)*side+x)
			}
		}
	}
	g, err := New(side*side, arcs)
	if err != nil {
		panic(err)
	}
	return g, cost, delay
}

// between returns a bound that the least sum meets and the best path does not.
func between(g *Graph, from, to int, objective, bounded Weights, share float64) float64 {
	least, _ := g.ShortestPath(from, to, bounded)
	best, _ := g.ShortestPath(from, to, objective)
	return math.Floor(least.Cost + share*(sum(bounded, best.Arcs)-least.Cost))
}

func TestSolveAgainstGonum(t *testing.T) {
	const nodes, count = 2000, 8000
	g, delay, _, width, _ := metro(nodes, count)
	const floor = 300.0
	wide := slices.Clone(delay)
	for i := range wide {
		if width[i] < floor {
			wide[i] = math.Inf(1)
		}
	}
	oracle := path.DijkstraFrom(simple.Node(0), gonumGraph(nodes, g.arcs, wide))
	for to := 1; to < nodes; to += 7 {
		want := oracle.WeightTo(int64(to))
		s, err := g.Solve(Problem{From: 0, To: to, Cost: delay, Width: width, MinWidth: floor})
		if got := s.Value; math.IsInf(want, 1) != (err != nil) || err == nil && got != want {
			t.Fatalf("to %d: %v (%v), gonum says %v", to, got, err, want)
		}
	}
}

// TestConstrainedAgainstGonumYen compares with gonum, which has no constrained search, but
// returns paths in the order of their cost: the first of them that meets the bound is the best.
func TestConstrainedAgainstGonumYen(t *testing.T) {
	const nodes, count = 25, 60
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 11))
		arcs, cost, delay := make([]Arc, count), make(Weights, count), make(Weights, count)
		known := map[[2]int64]int{}
		for i := range arcs {
			for known[[2]int64{int64(arcs[i].From), int64(arcs[i].To)}] != 0 || arcs[i].From == arcs[i].To {
				arcs[i] = Arc{r.IntN(nodes), r.IntN(nodes)}
			}
			known[[2]int64{int64(arcs[i].From), int64(arcs[i].To)}] = i + 1
			cost[i], delay[i] = float64(1+r.IntN(100)), float64(1+r.IntN(100))
		}
		g, _ := New(nodes, arcs)
		if _, ok := g.ShortestPath(0, 1, cost); !ok {
			continue
		}
		most := between(g, 0, 1, cost, delay, 0.4)
		s, err := g.Solve(Problem{From: 0, To: 1, Cost: cost, Bounds: []Bound{{delay, most}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range path.YenKShortestPaths(gonumGraph(nodes, arcs, cost), 10_000, math.Inf(1), simple.Node(0), simple.Node(1)) {
			var way []int
			for i := range p[1:] {
				way = append(way, known[[2]int64{p[i].ID(), p[i+1].ID()}]-1)
			}
			if sum(delay, way) <= most {
				if got := sum(cost, way); got != s.Value {
					t.Fatalf("seed %d: %v, gonum says %v", seed, s.Value, got)
				}
				break
			}
		}
	}
}

// TestOpposedGridSaysItsGap checks that the hard case stays within the limit, and that the
// reported gap holds.
func TestOpposedGridSaysItsGap(t *testing.T) {
	const side = 20
	g, cost, delay := opposed(side)
	p := Problem{From: 0, To: side*side - 1, Cost: cost, Bounds: []Bound{{delay, between(g, 0, side*side-1, cost, delay, 0.3)}}}
	p.Limit.Labels = 1 << 22
	best, err := g.Solve(p)
	if err != nil || !best.Exact {
		t.Fatalf("without a limit: %+v, %v", best, err)
	}
	stated := 0
	for _, limit := range []Limit{{Labels: 1}, {Labels: 10}, {Labels: 100}, {Labels: 1000}, {Time: time.Nanosecond}} {
		p.Limit = limit
		s, err := g.Solve(p)
		if err != nil || s.Value < best.Value || s.Bound > best.Value || s.Exact && s.Value != best.Value {
			t.Errorf("%+v: %v to %v by %s (%v), best is %v", limit, s.Bound, s.Value, s.Algorithm, err, best.Value)
		}
		if limit.Labels > 0 && s.Labels > 2*(limit.Labels+4) {
			t.Errorf("%+v: %d labels", limit, s.Labels)
		}
		if !s.Exact && s.Bound < s.Value {
			stated++
		}
	}
	if stated < 2 {
		t.Errorf("only %d limits left a gap, the test says little", stated)
	}
}

func TestConcurrentSolves(t *testing.T) {
	g, delay, jitter, width, hops := metro(500, 2000)
	p := Problem{From: 0, To: 250, Cost: jitter, Width: width, MinWidth: 100, Bounds: []Bound{{delay, between(g, 0, 250, jitter, delay, 0.5)}}}
	want, err := g.Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	other := Problem{From: 3, To: 99, Cost: hops, Width: width, Widest: true, Bounds: []Bound{{delay, 1e6}}}
	done := make(chan Solution, 8)
	for range cap(done) {
		go func() {
			var s Solution
			for range 20 {
				_, _ = g.Solve(other)
				s, _ = g.Solve(p)
			}
			done <- s
		}()
	}
	for range cap(done) {
		if s := <-done; !slices.Equal(s.Path.Arcs, want.Path.Arcs) {
			t.Errorf("got %v, want %v", s.Path.Arcs, want.Path.Arcs)
		}
	}
}

func TestLeastThrough(t *testing.T) {
	g, _ := New(4, []Arc{{0, 1}, {1, 3}, {0, 2}, {2, 3}, {3, 2}, {1, 0}})
	got := g.LeastThrough(0, 3, Weights{1, 2, 5, 1, 1, 0})
	if want := []float64{3, 3, 6, 5, math.Inf(1), math.Inf(1)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSolveAllocatesLittle checks that the memory of a search is reused: a call allocates only
// its result.
func TestSolveAllocatesLittle(t *testing.T) {
	g, delay, jitter, _, _ := metro(500, 2000)
	p := Problem{From: 0, To: 250, Cost: jitter, Bounds: []Bound{{delay, between(g, 0, 250, jitter, delay, 0.5)}}}
	if _, err := g.Solve(p); err != nil {
		t.Fatal(err)
	}
	most := 4.0
	if race.Enabled {
		most = 40 // then a sync.Pool drops one in four objects at random: 15 to 21
	}
	if n := testing.AllocsPerRun(50, func() { _, _ = g.Solve(p) }); n > most {
		t.Errorf("%v allocations for each search", n)
	}
}

const (
	bigNodes = 10_000
	bigArcs  = 40_000
)

// benchmarkTo solves towards changing ends, each with its own bound.
func benchmarkTo(b *testing.B, g *Graph, problem func(to int) Problem) {
	var problems []Problem
	for i := range 32 {
		p := problem(1 + i*7919%(g.Nodes()-1))
		if _, err := g.Solve(p); err == nil {
			problems = append(problems, p)
		}
	}
	i, labels, inexact := 0, 0, 0
	for b.Loop() {
		s, err := g.Solve(problems[i%len(problems)])
		if err != nil && !errors.Is(err, ErrUndecided) {
			b.Fatal(err)
		}
		labels += s.Labels
		if !s.Exact {
			inexact++
		}
		i++
	}
	b.ReportMetric(float64(labels)/float64(i), "labels/op")
	b.ReportMetric(float64(inexact)/float64(i), "inexact/op")
}

func BenchmarkBandwidthShortest10k(b *testing.B) {
	g, _, _, width, hops := metro(bigNodes, bigArcs)
	benchmarkTo(b, g, func(to int) Problem { return Problem{To: to, Cost: hops, Width: width, MinWidth: 300} })
}

func BenchmarkShortestWidest10k(b *testing.B) {
	g, _, _, width, hops := metro(bigNodes, bigArcs)
	benchmarkTo(b, g, func(to int) Problem { return Problem{To: to, Cost: hops, Width: width, Widest: true} })
}

func BenchmarkConstrainedDelay10k(b *testing.B) {
	g, delay, _, _, hops := metro(bigNodes, bigArcs)
	benchmarkTo(b, g, func(to int) Problem {
		return Problem{To: to, Cost: hops, Bounds: []Bound{{delay, between(g, 0, to, hops, delay, 0.5)}}}
	})
}

func BenchmarkConstrainedDelayLeastJitter10k(b *testing.B) {
	g, delay, jitter, _, _ := metro(bigNodes, bigArcs)
	benchmarkTo(b, g, func(to int) Problem {
		return Problem{To: to, Cost: jitter, Bounds: []Bound{{delay, between(g, 0, to, jitter, delay, 0.5)}}}
	})
}

func BenchmarkConstrainedDelayJitter10k(b *testing.B) {
	g, delay, jitter, _, hops := metro(bigNodes, bigArcs)
	benchmarkTo(b, g, func(to int) Problem {
		return Problem{To: to, Cost: hops, Bounds: []Bound{
			{delay, between(g, 0, to, jitter, delay, 0.5)}, {jitter, between(g, 0, to, delay, jitter, 0.5)},
		}}
	})
}

func BenchmarkConstrainedDelayWidest10k(b *testing.B) {
	g, delay, _, width, hops := metro(bigNodes, bigArcs)
	benchmarkTo(b, g, func(to int) Problem {
		least, _ := g.ShortestPath(0, to, delay)
		return Problem{To: to, Cost: hops, Width: width, Widest: true, Bounds: []Bound{{delay, math.Floor(1.3 * least.Cost)}}}
	})
}

// BenchmarkOpposedGrid solves the hard case with 10,000 nodes under a limit of 100 ms.
func BenchmarkOpposedGrid(b *testing.B) {
	const side = 100
	g, cost, delay := opposed(side)
	p := Problem{To: side*side - 1, Cost: cost, Bounds: []Bound{{delay, between(g, 0, side*side-1, cost, delay, 0.3)}}}
	p.Limit.Time = 100 * time.Millisecond
	var s Solution
	for b.Loop() {
		var err error
		if s, err = g.Solve(p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(100*(s.Value-s.Bound)/s.Value, "gap-%")
}

// BenchmarkConstrainedGrid solves a grid of 10,000 nodes with independent costs and delays, and
// long paths.
func BenchmarkConstrainedGrid(b *testing.B) {
	const side = 100
	g, cost, _ := opposed(side)
	r := rand.New(rand.NewPCG(12, 13))
	delay := make(Weights, g.Arcs())
	for i := range delay {
		delay[i] = float64(1 + r.IntN(1000))
	}
	benchmarkTo(b, g, func(to int) Problem {
		return Problem{To: to, Cost: cost, Bounds: []Bound{{delay, between(g, 0, to, cost, delay, 0.5)}}, Limit: Limit{Time: 100 * time.Millisecond}}
	})
}

package graph

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// net is a small random graph with four metrics.
type net struct {
	g                          *Graph
	width, delay, loss, jitter Weights
	hops                       Weights
	most                       float64 // weights are below it
	paths                      [][]int // every path from 0 to 1 without repeated nodes
}

// newNet draws whole numbers below most in half of the cases, so that ties are common.
func newNet(r *rand.Rand, nodes, count int, most float64) *net {
	arcs := make([]Arc, count)
	n := &net{hops: make(Weights, count), most: most}
	for i := range arcs {
		arcs[i] = Arc{r.IntN(nodes), r.IntN(nodes)}
		n.hops[i] = 1
	}
	whole := r.IntN(2) == 0
	draw := func() Weights {
		w := make(Weights, count)
		for i := range w {
			switch w[i] = most * r.Float64(); {
			case r.IntN(20) == 0:
				w[i] = -1
			case whole:
				w[i] = math.Floor(w[i])
			}
		}
		return w
	}
	n.width, n.delay, n.loss, n.jitter = draw(), draw(), draw(), draw()
	n.g, _ = New(nodes, arcs)
	n.walk(0, nil, make([]bool, nodes))
	return n
}

func (n *net) walk(at int, arcs []int, seen []bool) {
	if at == 1 {
		n.paths = append(n.paths, slices.Clone(arcs))
		return
	}
	seen[at] = true
	for i, a := range n.g.arcs {
		if a.From == at && !seen[a.To] {
			n.walk(a.To, append(arcs, i), seen)
		}
	}
	seen[at] = false
}

// class is a kind of problem: its bounds and its objective.
type class struct {
	name      string
	bandwidth bool
	bounds    string // of "d", "l", "j"
	objective string // "h", "d", "l", "j" or "w"
	maxCost   bool
}

// classes holds the problems of tables 2.1 and 2.2.
var classes = []class{
	{name: "constrained bandwidth", bandwidth: true, objective: "h"},
	{name: "constrained delay", bounds: "d", objective: "h"},
	{name: "constrained loss", bounds: "l", objective: "h"},
	{name: "widest", objective: "w"},
	{name: "least delay", objective: "d"},
	{name: "least loss", objective: "l"},
	{name: "constrained bandwidth, least delay", bandwidth: true, objective: "d"},
	{name: "constrained bandwidth, least loss", bandwidth: true, objective: "l"},
	{name: "constrained delay and bandwidth", bandwidth: true, bounds: "d", objective: "h"},
	{name: "constrained delay and jitter", bounds: "dj", objective: "h"},
	{name: "constrained delay and loss", bounds: "dl", objective: "h"},
	{name: "constrained delay, least jitter", bounds: "d", objective: "j"},
	{name: "constrained jitter, least loss", bounds: "j", objective: "l"},
}

func mixed(r *rand.Rand) class {
	c := class{name: "mixed", bandwidth: r.IntN(2) == 0, objective: []string{"h", "d", "l", "j", "w"}[r.IntN(5)]}
	for _, b := range []string{"d", "l", "j"} {
		if r.IntN(2) == 0 {
			c.bounds += b
		}
	}
	c.maxCost = c.objective != "w" && r.IntN(4) == 0
	return c
}

func (n *net) metric(name rune) Weights {
	return map[rune]Weights{'h': n.hops, 'w': n.hops, 'd': n.delay, 'l': n.loss, 'j': n.jitter}[name]
}

func (n *net) problem(r *rand.Rand, c class) Problem {
	p := Problem{From: 0, To: 1, Cost: n.metric(rune(c.objective[0])), Widest: c.objective == "w"}
	if c.bandwidth || p.Widest {
		p.Width = n.width
	}
	if c.bandwidth {
		p.MinWidth = math.Floor(n.most * r.Float64())
	}
	for _, b := range c.bounds {
		p.Bounds = append(p.Bounds, n.bound(r, n.metric(b)))
	}
	if c.maxCost {
		p.MaxCost = 1 + math.Floor(1.6*n.most*r.Float64())
	}
	return p
}

// bound returns a bound that is the sum of one of the paths, so that it is tight, or any other.
func (n *net) bound(r *rand.Rand, w Weights) Bound {
	if len(n.paths) > 0 && r.IntN(2) == 0 {
		return Bound{w, max(0, sum(w, n.paths[r.IntN(len(n.paths))]))}
	}
	return Bound{w, math.Floor(2 * n.most * r.Float64())}
}

// trial is the result of brute force: the best value, and the fewest arcs of a path with that
// value.
type trial struct {
	value float64
	arcs  int
	ok    bool
}

func (n *net) brute(p Problem) (best trial) {
	for _, path := range n.paths {
		value, ok := judge(p, path)
		if !ok {
			continue
		}
		better := value < best.value
		if p.Widest {
			better = value > best.value
		}
		if !best.ok || better || value == best.value && len(path) < best.arcs {
			best = trial{value, len(path), true}
		}
	}
	return best
}

// judge returns the objective's value of a path, and whether the path meets the constraints.
func judge(p Problem, path []int) (float64, bool) {
	cost, narrow := 0.0, math.Inf(1)
	sums := make([]float64, len(p.Bounds))
	for _, a := range path {
		if p.Cost[a] < 0 || p.Width != nil && (p.Width[a] < 0 || p.Width[a] < p.MinWidth) {
			return 0, false
		}
		cost += p.Cost[a]
		if p.Width != nil {
			narrow = min(narrow, p.Width[a])
		}
		for i, b := range p.Bounds {
			if b.Weights[a] < 0 {
				return 0, false
			}
			sums[i] += b.Weights[a]
		}
	}
	for i, b := range p.Bounds {
		if sums[i] > b.Max+1e-9 {
			return 0, false
		}
	}
	if p.Widest {
		return narrow, true
	}
	return cost, p.MaxCost == 0 || cost <= p.MaxCost+1e-9
}

func near(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-9 }

// check compares an exact answer with brute force.
func (n *net) check(t *testing.T, p Problem, s Solution, err error) {
	t.Helper()
	want := n.brute(p)
	var none *NoPathError
	if err != nil {
		if want.ok || !errors.As(err, &none) {
			t.Fatalf("%v, brute force has %v", err, want)
		}
		n.checkReason(t, p, none)
		return
	}
	if !want.ok {
		t.Fatalf("found %v, brute force has no path", s)
	}
	if value := n.checkPath(t, p, s); !near(value, want.value) || !s.Exact || s.Bound != s.Value {
		t.Fatalf("%+v, want %v", s, want)
	}
	if len(s.Path.Arcs) != want.arcs {
		t.Fatalf("%d arcs, want %d", len(s.Path.Arcs), want.arcs)
	}
}

// checkPath checks that the solution's path has the values that the solution says.
func (n *net) checkPath(t *testing.T, p Problem, s Solution) float64 {
	t.Helper()
	at, seen := 0, map[int]bool{0: true}
	for _, a := range s.Path.Arcs {
		if n.g.arcs[a].From != at || seen[n.g.arcs[a].To] {
			t.Fatalf("%v is not a path without loops", s.Path.Arcs)
		}
		at = n.g.arcs[a].To
		seen[at] = true
	}
	value, ok := judge(p, s.Path.Arcs)
	if at != 1 || !ok || !near(value, s.Value) {
		t.Fatalf("%+v ends at %d and is worth %v, constraints met: %v", s, at, value, ok)
	}
	return value
}

// checkReason checks that the reason holds without the other constraints.
func (n *net) checkReason(t *testing.T, p Problem, e *NoPathError) {
	t.Helper()
	free := p
	free.MaxCost, free.Bounds = 0, []Bound{{p.Cost, math.MaxFloat64}}
	for _, b := range p.Bounds { // bounds still exclude arcs
		free.Bounds = append(free.Bounds, Bound{b.Weights, math.MaxFloat64})
	}
	switch e.Reason {
	case Disconnected:
	case TooCostly:
		if e.Least <= p.MaxCost {
			t.Fatalf("%v, and %v was allowed", e, p.MaxCost)
		}
		return
	case Together:
		if len(p.Bounds) == 0 {
			t.Fatalf("%v without bounds", e)
		}
		return
	default:
		free.Cost, free.Widest = p.Bounds[e.Reason].Weights, false
	}
	best := n.brute(free)
	if best.ok != (e.Reason >= 0) || best.ok && (!near(best.value, e.Least) || e.Least <= p.Bounds[e.Reason].Max) {
		t.Fatalf("%v, brute force has %v", e, best)
	}
}

const small = 10_000

func TestSolveAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	found := map[string]int{}
	for range small {
		n := newNet(r, 2+r.IntN(6), r.IntN(17), 5)
		for _, c := range append(classes, mixed(r), mixed(r)) {
			p := n.problem(r, c)
			s, err := n.g.Solve(p)
			n.check(t, p, s, err)
			if err == nil {
				found[c.name]++
				found[string(s.Algorithm)]++
			}
		}
	}
	for _, c := range classes {
		if found[c.name] < small/50 {
			t.Errorf("%s: only %d of %d have a path, the test says little", c.name, found[c.name], small)
		}
	}
	if found[string(LabelSetting)] < small/50 {
		t.Errorf("label setting was needed %d times, the test says little", found[string(LabelSetting)])
	}
}

// TestLimitedSolveAgainstBruteForce solves with a small limit of labels. The answer may be worse
// than the best one and never better, and its reported gap must hold.
func TestLimitedSolveAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	used := map[Algorithm]int{}
	for range small {
		n := newNet(r, 6+r.IntN(4), 10+r.IntN(20), 20)
		for _, c := range append(classes[9:], mixed(r), mixed(r)) {
			p := n.problem(r, c)
			p.Limit.Labels = 1 + r.IntN(8)
			want := n.brute(p)
			s, err := n.g.Solve(p)
			switch {
			case errors.Is(err, ErrUndecided):
				if len(p.Bounds) < 2 && p.MaxCost == 0 {
					t.Fatalf("undecided with one bound: %+v", p)
				}
				continue
			case err != nil || !want.ok:
				n.check(t, p, s, err)
				continue
			}
			used[s.Algorithm]++
			value, bound, best := n.checkPath(t, p, s), s.Bound, want.value
			if p.Widest {
				value, bound, best = -value, -bound, -best
			}
			if value < best-1e-9 || bound > best+1e-9 || s.Exact && !near(value, best) {
				t.Fatalf("%+v, best is %v", s, want)
			}
		}
	}
	for _, a := range []Algorithm{Dijkstra, LARAC, Subgradient, Relaxation, BranchAndBound} {
		if used[a] < 20 {
			t.Errorf("%s was used %d times, the test says little", a, used[a])
		}
	}
}

func TestSolveRefusesNonsense(t *testing.T) {
	g, _ := New(2, []Arc{{0, 1}})
	w := Weights{1}
	for name, p := range map[string]Problem{
		"no such node":         {From: 0, To: 2, Cost: w},
		"no costs":             {From: 0, To: 1},
		"widths missing":       {From: 0, To: 1, Cost: w, Width: Weights{}},
		"widest of no widths":  {From: 0, To: 1, Cost: w, Widest: true},
		"widest up to a cost":  {From: 0, To: 1, Cost: w, Width: w, Widest: true, MaxCost: 1},
		"too many bounds":      {From: 0, To: 1, Cost: w, Bounds: make([]Bound, MaxBounds+1)},
		"bound without weight": {From: 0, To: 1, Cost: w, Bounds: []Bound{{Max: 1}}},
		"negative bound":       {From: 0, To: 1, Cost: w, Bounds: []Bound{{w, -1}}},
		"no number":            {From: 0, To: 1, Cost: w, Bounds: []Bound{{w, math.NaN()}}},
	} {
		var none *NoPathError
		if _, err := g.Solve(p); err == nil || errors.As(err, &none) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

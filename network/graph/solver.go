package graph

import (
	"math"
	"time"
)

// slack is the part of a bound by which a sum may exceed it: rounding.
const slack = 1e-12

func within(sum, most float64) bool { return sum <= most+most*slack }

// solver is the working memory of one [Graph.Solve], reused between them.
type solver struct {
	g        *Graph
	p        *Problem
	deadline time.Time // of everything; zero is none
	exactBy  time.Time // of the exact search

	open []bool               // arcs that take part
	skip func(arc int32) bool // those that do not
	gap  gap
	// rest is what every node needs to reach the end: of each bound, then of the
	// cost, and of what relaxation mixes of them in the last place.
	rest  [MaxBounds + 2]*search
	guide guide

	states  []state
	queue   queue
	settled []int32 // per node: the state that was settled last, -1 for none
	mixed   Weights
}

func newSolver(g *Graph) *solver {
	s := &solver{g: g, open: make([]bool, g.Arcs()), settled: make([]int32, g.Nodes())}
	s.skip = func(arc int32) bool { return !s.open[arc] }
	return s
}

// Solve finds the best path that meets the bounds. Where that is an NP-complete
// problem, the search is exact until the limit is reached. There being no path is
// a *[NoPathError]; not to know is [ErrUndecided].
func (g *Graph) Solve(p Problem) (Solution, error) {
	if err := g.validate(&p); err != nil {
		return Solution{}, err
	}
	if p.Limit.Labels <= 0 {
		p.Limit.Labels = DefaultLabels
	}
	var deadline time.Time
	if p.Limit.Time > 0 {
		deadline = time.Now().Add(p.Limit.Time)
	}
	return g.solve(&p, deadline)
}

func (g *Graph) solve(p *Problem, deadline time.Time) (Solution, error) {
	s := g.solvers.Get().(*solver)
	defer g.solvers.Put(s)
	s.begin(p, deadline)
	defer s.end()
	if p.Widest {
		return s.widest()
	}
	return s.cheapest()
}

func (s *solver) begin(p *Problem, deadline time.Time) {
	s.p, s.deadline, s.exactBy = p, deadline, share(deadline, 4)
	s.gap = gap{most: math.MaxFloat64}
	if p.MaxCost > 0 {
		s.gap.most = p.MaxCost
	}
	s.guide.forget()
	for i := range s.open {
		s.open[i] = p.takes(i)
	}
}

// end gives back what was borrowed and forgets the caller's data.
func (s *solver) end() {
	for i, r := range s.rest {
		if r != nil {
			s.g.reverse().pool.Put(r)
			s.rest[i] = nil
		}
	}
	s.p, s.gap = nil, gap{}
}

// gap is what is left between the best path so far that meets the bounds and what none
// can cost less than.
type gap struct {
	best Path
	have bool    // there is one
	low  float64 // no path costs less
	most float64 // what a path may cost at all
}

// ceiling is what a path may cost to be of use.
func (g *gap) ceiling() float64 {
	if g.have {
		return g.best.Cost
	}
	return g.most
}

// take takes a path that meets the bounds for the best one if it is.
func (g *gap) take(p Path) {
	if p.Cost < g.ceiling() || within(p.Cost, g.ceiling()) && !g.have {
		g.best, g.have = p, true
	}
}

// closed reports whether no path is better than the best one, within what rounding
// does to a lower bound.
func (g *gap) closed() bool { return g.have && g.best.Cost-g.low <= 1e-11*g.best.Cost }

// takes reports whether an arc takes part at all.
func (p *Problem) takes(arc int) bool {
	if !usable(p.Cost[arc]) || p.Width != nil && (!usable(p.Width[arc]) || p.Width[arc] < p.MinWidth) {
		return false
	}
	for _, b := range p.Bounds {
		if !usable(b.Weights[arc]) {
			return false
		}
	}
	return true
}

// meets reports whether a path meets the bounds.
func (p *Problem) meets(arcs []int) bool {
	for _, b := range p.Bounds {
		if !within(sum(b.Weights, arcs), b.Max) {
			return false
		}
	}
	return true
}

// cheapest solves problems whose objective is a sum. Where the cheapest path of all
// meets the bounds, nothing else needs to be looked at.
func (s *solver) cheapest() (Solution, error) {
	p, err := s.shortest(s.p.Cost)
	if err != nil {
		return Solution{}, err
	}
	if s.p.MaxCost > 0 && !within(p.Cost, s.p.MaxCost) {
		return Solution{}, &NoPathError{TooCostly, p.Cost}
	}
	if s.p.meets(p.Arcs) {
		return Solution{Path: p, Value: p.Cost, Bound: p.Cost, Exact: true, Algorithm: Dijkstra}, nil
	}
	if err := s.lookBack(); err != nil {
		return Solution{}, err
	}
	s.prune()
	end, bound := s.exact(p.Cost)
	s.gap.low = max(s.gap.low, bound)
	switch end {
	case exhausted:
		return Solution{}, &NoPathError{Reason: Together}
	case limited:
		return s.relaxed()
	}
	found := s.way(end)
	return Solution{Path: found, Value: found.Cost, Bound: found.Cost, Exact: true, Algorithm: LabelSetting, Labels: len(s.states)}, nil
}

// exact is the exact search for the path of least cost, which is known to be low at least.
func (s *solver) exact(low float64) (int32, float64) {
	back := s.backwards(s.p.Cost)
	s.rest[len(s.p.Bounds)], s.gap.low = back, low
	if start, ok := back.known(int32(s.p.From)); ok {
		s.gap.low = max(low, start.cost)
	}
	return s.settle()
}

// shortest is the path of least sum over the arcs that take part.
func (s *solver) shortest(w Weights) (Path, error) {
	from, to := s.p.From, s.p.To
	m := s.g.pool.Get().(*search)
	defer s.g.pool.Put(m)
	m.reset()
	if !s.g.run(m, from, to, w, s.skip) {
		return Path{}, &NoPathError{Reason: Disconnected}
	}
	return s.g.path(m, to), nil
}

// lookBack finds for each bound how much of it every node needs at least to reach
// the end, and fails if that alone is too much.
func (s *solver) lookBack() error {
	for i, b := range s.p.Bounds {
		s.rest[i] = s.backwards(b.Weights)
		start, ok := s.rest[i].known(int32(s.p.From))
		if !ok {
			return &NoPathError{Reason: Disconnected}
		}
		if !within(start.cost, b.Max) {
			return &NoPathError{i, start.cost}
		}
	}
	return nil
}

// backwards is a search from the end against the arcs' direction.
func (s *solver) backwards(w Weights) *search {
	r := s.g.reverse()
	m := r.pool.Get().(*search)
	m.reset()
	r.run(m, s.p.To, -1, w, s.skip)
	return m
}

// follow reads the path from a node to the end off a search made backwards.
func (s *solver) follow(m *search, from int) []int {
	var arcs []int
	for n := from; n != s.p.To; {
		arc := int(m.labels[n].arc)
		arcs = append(arcs, arc)
		n = s.g.arcs[arc].To
	}
	return arcs
}

// offer takes a path for the best one if it is, and reports whether it meets the bounds.
func (s *solver) offer(arcs []int) bool {
	if !s.p.meets(arcs) {
		return false
	}
	s.gap.take(Path{Arcs: arcs, Cost: sum(s.p.Cost, arcs)})
	return true
}

func sum(w Weights, arcs []int) float64 {
	total := 0.0
	for _, a := range arcs {
		total += w[a]
	}
	return total
}

// narrowest is the width of a path, infinite for one without arcs.
func narrowest(width Weights, arcs []int) float64 {
	w := math.Inf(1)
	for _, a := range arcs {
		w = min(w, width[a])
	}
	return w
}

// share is the end of the n-th part of the time that is left until t, which is
// without end if t is zero.
func share(t time.Time, n time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	left := time.Until(t)
	return t.Add(left/n - left)
}

func late(t time.Time) bool { return !t.IsZero() && time.Now().After(t) }

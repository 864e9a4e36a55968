package graph

import (
	"math"
	"time"
)

// slack is the relative rounding error that is allowed in comparisons with a bound.
const slack = 1e-12

func within(sum, most float64) bool { return sum <= most+most*slack }

// solver is the working memory of one [Graph.Solve]. Solvers are reused.
type solver struct {
	g             *Graph
	p             *Problem
	deadline      time.Time // for the whole search; zero means none
	exactDeadline time.Time // for the exact search

	usable []bool               // arcs that are not excluded
	skip   func(arc int32) bool // reports whether an arc is excluded
	gap    gap
	// remaining holds backward searches. They give, for every node, the least sum of a path from the
	// node to the end: first in the weights of each bound, then in the cost, and in the last element
	// in the mixed weights.
	remaining [MaxBounds + 2]*search
	guide     guide

	paths    []partialPath
	queue    queue
	latestAt []int32 // per node: the partial path that was settled last, -1 for none
	mixed    Weights
}

func newSolver(g *Graph) *solver {
	s := &solver{g: g, usable: make([]bool, g.Arcs()), latestAt: make([]int32, g.Nodes())}
	s.skip = func(arc int32) bool { return !s.usable[arc] }
	return s
}

// Solve returns the best path that meets the bounds. If that is an NP-complete problem, the
// search is exact until the limit is reached. If no path meets the bounds, the error is a
// *[NoPathError]. If the limit was reached before that was known, the error is [ErrUndecided].
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
	s.p, s.deadline, s.exactDeadline = p, deadline, part(deadline, 4)
	s.gap = gap{maxCost: math.MaxFloat64}
	if p.MaxCost > 0 {
		s.gap.maxCost = p.MaxCost
	}
	s.guide.reset()
	for i := range s.usable {
		s.usable[i] = p.includes(i)
	}
}

// end returns pooled searches and drops references to the caller's data.
func (s *solver) end() {
	for i, r := range s.remaining {
		if r != nil {
			s.g.reverse().pool.Put(r)
			s.remaining[i] = nil
		}
	}
	s.p, s.gap = nil, gap{}
}

// gap is the best path so far that meets the bounds, and a lower bound on the cost of any such
// path.
type gap struct {
	best    Path
	found   bool    // whether there is a best path
	low     float64 // no path costs less
	maxCost float64 // the problem's limit of the cost
}

// ceiling returns the cost that a path must not exceed to be of use: that of the best path so far
// or, if there is none, the problem's limit.
func (g *gap) ceiling() float64 {
	if g.found {
		return g.best.Cost
	}
	return g.maxCost
}

// update makes p the best path if p is better than the present one. The caller has checked that p
// meets the bounds.
func (g *gap) update(p Path) {
	if p.Cost < g.ceiling() || within(p.Cost, g.ceiling()) && !g.found {
		g.best, g.found = p, true
	}
}

// closed reports whether no path is better than the best one, within the rounding error of a
// lower bound.
func (g *gap) closed() bool { return g.found && g.best.Cost-g.low <= 1e-11*g.best.Cost }

// includes reports whether an arc is not excluded by its weights or its width.
func (p *Problem) includes(arc int) bool {
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

// cheapest solves problems whose objective is a sum. If the cheapest of all paths meets the
// bounds, no other search is needed.
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
	if err := s.searchBounds(); err != nil {
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
	found := s.pathOf(end)
	return Solution{Path: found, Value: found.Cost, Bound: found.Cost, Exact: true, Algorithm: LabelSetting, Labels: len(s.paths)}, nil
}

// exact runs the exact search for the path of least cost. low is a known lower bound on that cost.
func (s *solver) exact(low float64) (int32, float64) {
	back := s.backwards(s.p.Cost)
	s.remaining[len(s.p.Bounds)], s.gap.low = back, low
	if start, ok := back.known(int32(s.p.From)); ok {
		s.gap.low = max(low, start.cost)
	}
	return s.labelSetting()
}

// shortest returns the path with the least sum over the arcs that are not excluded.
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

// searchBounds computes, for each bound and every node, the least sum of a path from the node to
// the end in the bound's weights. It returns an error if the start's least sum exceeds a bound.
func (s *solver) searchBounds() error {
	for i, b := range s.p.Bounds {
		s.remaining[i] = s.backwards(b.Weights)
		start, ok := s.remaining[i].known(int32(s.p.From))
		if !ok {
			return &NoPathError{Reason: Disconnected}
		}
		if !within(start.cost, b.Max) {
			return &NoPathError{i, start.cost}
		}
	}
	return nil
}

// backwards searches from the end against the arcs' direction, and returns the search.
func (s *solver) backwards(w Weights) *search {
	r := s.g.reverse()
	m := r.pool.Get().(*search)
	m.reset()
	r.run(m, s.p.To, -1, w, s.skip)
	return m
}

// pathFrom returns the path from a node to the end that a backward search has found.
func (s *solver) pathFrom(m *search, from int) []int {
	var arcs []int
	for n := from; n != s.p.To; {
		arc := int(m.labels[n].arc)
		arcs = append(arcs, arc)
		n = s.g.arcs[arc].To
	}
	return arcs
}

// offer makes a path the best one if it is better, and reports whether it meets the bounds.
func (s *solver) offer(arcs []int) bool {
	if !s.p.meets(arcs) {
		return false
	}
	s.gap.update(Path{Arcs: arcs, Cost: sum(s.p.Cost, arcs)})
	return true
}

func sum(w Weights, arcs []int) float64 {
	total := 0.0
	for _, a := range arcs {
		total += w[a]
	}
	return total
}

// narrowest returns the width of a path: that of its narrowest arc, or +Inf for a path without
// arcs.
func narrowest(width Weights, arcs []int) float64 {
	w := math.Inf(1)
	for _, a := range arcs {
		w = min(w, width[a])
	}
	return w
}

// part returns the time at which one n-th of the time that is left until t will have passed. It
// returns zero if t is zero.
func part(t time.Time, n time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	left := time.Until(t)
	return t.Add(left/n - left)
}

func expired(t time.Time) bool { return !t.IsZero() && time.Now().After(t) }

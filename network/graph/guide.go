package graph

import "math"

// guide is what relaxation leaves to a second exact search: multipliers that make a
// lower bound of what a way will cost, and for each node ways to the end by which it
// can be completed: the best in each bound, and the best in the mixture.
type guide struct {
	on          bool
	proved      float64 // what the multipliers prove to be the least cost
	multipliers [MaxBounds]float64
	allowed     float64 // the multipliers times their bounds
	tails       [MaxBounds + 1][]tail
	stack       []int32
}

// tail is what the guide's way from a node to the end adds.
type tail struct {
	cost float64 // unknown while it has not been added up
	sums [MaxBounds]float64
}

const unknown = -1

func (g *guide) forget() {
	g.on, g.proved, g.multipliers, g.allowed = false, 0, [MaxBounds]float64{}, 0
}

// relaxed answers what the exact search could not within its share of the time:
// relaxation gives a lower bound and, with every way that the search has kept, paths;
// then the search is made again and drops what cannot be better than those.
func (s *solver) relaxed() (Solution, error) {
	cheapest, err := s.shortest(s.p.Cost)
	if err != nil { // of the arcs that could be part of a path none make one
		return Solution{}, &NoPathError{Reason: Together}
	}
	s.gap.low = max(s.gap.low, cheapest.Cost)
	used, labels := Dijkstra, len(s.states)
	switch {
	case s.offer(cheapest.Arcs):
	case len(s.p.Bounds) == 1:
		used = LARAC
		s.larac(cheapest)
	default:
		used = Subgradient
		s.subgradient(cheapest)
	}
	s.lead()
	for i := range s.states {
		s.complete(int32(i))
	}
	if !s.gap.closed() && !late(s.deadline) {
		s.exactBy = s.deadline
		end, bound := s.settle()
		labels += len(s.states)
		if s.gap.low = max(s.gap.low, bound); end == exhausted {
			used, s.gap.low = BranchAndBound, s.gap.ceiling()
		}
	}
	switch {
	case s.gap.have:
		low := min(s.gap.low, s.gap.best.Cost)
		return Solution{Path: s.gap.best, Value: s.gap.best.Cost, Bound: low, Exact: s.gap.closed(), Algorithm: used, Labels: labels}, nil
	case used == BranchAndBound:
		return Solution{}, &NoPathError{Reason: Together}
	case s.p.MaxCost > 0 && !within(s.gap.low, s.p.MaxCost):
		return Solution{}, &NoPathError{TooCostly, s.gap.low}
	}
	return Solution{}, ErrUndecided
}

// lead makes the guide of the best multipliers.
func (s *solver) lead() {
	s.rest[MaxBounds+1] = s.backwards(s.mix(&s.guide.multipliers))
	s.guide.on = true
	for i := range s.completions() {
		s.addUp(i, s.completion(i))
	}
}

// completions is how many ways to the end the guide has for each node.
func (s *solver) completions() int { return len(s.p.Bounds) + 1 }

// completion is the search that one of them comes from.
func (s *solver) completion(i int) *search {
	if i == len(s.p.Bounds) {
		return s.rest[MaxBounds+1]
	}
	return s.rest[i]
}

// addUp adds up the tails of all nodes, each from that of the node it leads to.
func (s *solver) addUp(i int, back *search) {
	g := &s.guide
	if g.tails[i] == nil {
		g.tails[i] = make([]tail, s.g.Nodes())
	}
	tails := g.tails[i]
	for n := range tails {
		tails[n].cost = unknown
	}
	tails[s.p.To] = tail{}
	for n := range tails {
		at := int32(n)
		for ; tails[at].cost == unknown; at = int32(s.g.arcs[back.labels[at].arc].To) {
			if _, ok := back.known(at); !ok {
				break
			}
			g.stack = append(g.stack, at)
		}
		for ; len(g.stack) > 0; g.stack = g.stack[:len(g.stack)-1] {
			at := g.stack[len(g.stack)-1]
			arc := int(back.labels[at].arc)
			tails[at] = s.p.before(arc, tails[s.g.arcs[arc].To])
		}
	}
}

// before is the tail with an arc before it.
func (p *Problem) before(arc int, t tail) tail {
	t.cost += p.Cost[arc]
	for i, b := range p.Bounds {
		t.sums[i] += b.Weights[arc]
	}
	return t
}

// promises reports whether a way may become better than the best path there is, and
// gives it its place in the order: by lower bounds, which are rounded down, so that
// among ways that promise nearly the same the longest comes first and soon arrives.
func (s *solver) promises(at *state, key *item) bool {
	to, ok := s.rest[MaxBounds+1].known(at.node)
	if !ok {
		return false
	}
	least := (at.cost+to.cost)*(1-slack) - s.guide.allowed*(1+slack)
	for i := range s.p.Bounds {
		least += s.guide.multipliers[i] * at.sums[i]
	}
	least = max(least, key.cost)
	if s.gap.have && within(s.gap.best.Cost, least) {
		return false
	}
	if grain := s.gap.low * 1e-3; grain > 0 {
		least = max(s.gap.low, math.Floor(least/grain)*grain)
	}
	key.cost, key.hops = least, -at.hops
	return true
}

// complete offers the paths that a way and the guide's from its node make together.
func (s *solver) complete(way int32) {
	for i := range s.completions() {
		if s.fits(&s.states[way], &s.guide.tails[i][s.states[way].node]) {
			arcs := append(s.way(way).Arcs, s.follow(s.completion(i), int(s.states[way].node))...)
			s.offer(s.g.withoutLoops(arcs))
		}
	}
}

// fits reports whether a way with this tail is a path better than the best.
func (s *solver) fits(at *state, t *tail) bool {
	if t.cost == unknown || at.cost+t.cost >= s.gap.ceiling() {
		return false
	}
	for i, b := range s.p.Bounds {
		if !within(at.sums[i]+t.sums[i], b.Max) {
			return false
		}
	}
	return true
}

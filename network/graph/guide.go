package graph

import "math"

// guide holds the results of relaxation for a second exact search. They are multipliers that give
// a lower bound on the cost of a path, and tails for each node, by which a partial path can be
// completed: the shortest in each bound, and the shortest in the mixed weights.
type guide struct {
	active      bool
	provedCost  float64 // the least cost that the multipliers prove
	multipliers [MaxBounds]float64
	allowed     float64 // the multipliers times their bounds
	tails       [MaxBounds + 1][]tail
	stack       []int32
}

// tail is the cost and the sums of a path from a node to the end.
type tail struct {
	cost float64 // unknown until it has been computed
	sums [MaxBounds]float64
}

const unknown = -1

func (g *guide) reset() {
	g.active, g.provedCost, g.multipliers, g.allowed = false, 0, [MaxBounds]float64{}, 0
}

// relaxed continues when the exact search has used up its share of the time. Relaxation gives a
// lower bound and, by completing every partial path that the search has kept, complete paths.
// Then the exact search is repeated. It drops partial paths that cannot become better than the
// best complete path.
func (s *solver) relaxed() (Solution, error) {
	cheapest, err := s.shortest(s.p.Cost)
	if err != nil { // no path consists of the arcs that are left
		return Solution{}, &NoPathError{Reason: Together}
	}
	s.gap.low = max(s.gap.low, cheapest.Cost)
	used, labels := Dijkstra, len(s.paths)
	switch {
	case s.offer(cheapest.Arcs):
	case len(s.p.Bounds) == 1:
		used = LARAC
		s.larac(cheapest)
	default:
		used = Subgradient
		s.subgradient(cheapest)
	}
	s.prepareGuide()
	for i := range s.paths {
		s.tryCompletions(int32(i))
	}
	if !s.gap.closed() && !expired(s.deadline) {
		s.exactDeadline = s.deadline
		end, bound := s.labelSetting()
		labels += len(s.paths)
		if s.gap.low = max(s.gap.low, bound); end == exhausted {
			used, s.gap.low = BranchAndBound, s.gap.ceiling()
		}
	}
	switch {
	case s.gap.found:
		low := min(s.gap.low, s.gap.best.Cost)
		return Solution{Path: s.gap.best, Value: s.gap.best.Cost, Bound: low, Exact: s.gap.closed(), Algorithm: used, Labels: labels}, nil
	case used == BranchAndBound:
		return Solution{}, &NoPathError{Reason: Together}
	case s.p.MaxCost > 0 && !within(s.gap.low, s.p.MaxCost):
		return Solution{}, &NoPathError{TooCostly, s.gap.low}
	}
	return Solution{}, ErrUndecided
}

// prepareGuide computes the guide's tails with the best multipliers.
func (s *solver) prepareGuide() {
	s.remaining[MaxBounds+1] = s.backwards(s.mix(&s.guide.multipliers))
	s.guide.active = true
	for i := range s.completions() {
		s.sumTails(i, s.completion(i))
	}
}

// completions returns the number of tails that the guide has for each node.
func (s *solver) completions() int { return len(s.p.Bounds) + 1 }

// completion returns the backward search that found the i-th tails.
func (s *solver) completion(i int) *search {
	if i == len(s.p.Bounds) {
		return s.remaining[MaxBounds+1]
	}
	return s.remaining[i]
}

// sumTails computes the tails of all nodes, each from the tail of the next node.
func (s *solver) sumTails(i int, back *search) {
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
			tails[at] = s.p.prepend(arc, tails[s.g.arcs[arc].To])
		}
	}
}

// prepend returns the tail with an arc before it.
func (p *Problem) prepend(arc int, t tail) tail {
	t.cost += p.Cost[arc]
	for i, b := range p.Bounds {
		t.sums[i] += b.Weights[arc]
	}
	return t
}

// mayImprove reports whether a partial path may become better than the best path so far, and
// sets its key in the queue. The key is its lower bound, rounded down, so that among partial
// paths with nearly the same bound the longest comes first and soon reaches the end.
func (s *solver) mayImprove(at *partialPath, key *item) bool {
	to, ok := s.remaining[MaxBounds+1].known(at.node)
	if !ok {
		return false
	}
	least := (at.cost+to.cost)*(1-slack) - s.guide.allowed*(1+slack)
	for i := range s.p.Bounds {
		least += s.guide.multipliers[i] * at.sums[i]
	}
	least = max(least, key.cost)
	if s.gap.found && within(s.gap.best.Cost, least) {
		return false
	}
	if grain := s.gap.low * 1e-3; grain > 0 {
		least = max(s.gap.low, math.Floor(least/grain)*grain)
	}
	key.cost, key.hops = least, -at.hops
	return true
}

// tryCompletions offers the paths that a partial path forms with the guide's tails.
func (s *solver) tryCompletions(path int32) {
	for i := range s.completions() {
		if s.improvesWith(&s.paths[path], &s.guide.tails[i][s.paths[path].node]) {
			arcs := append(s.pathOf(path).Arcs, s.pathFrom(s.completion(i), int(s.paths[path].node))...)
			s.offer(s.g.withoutLoops(arcs))
		}
	}
}

// improvesWith reports whether a partial path, completed by this tail, meets the bounds and is
// better than the best path so far.
func (s *solver) improvesWith(at *partialPath, t *tail) bool {
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

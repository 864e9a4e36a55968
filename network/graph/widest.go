package graph

import "math"

// maxWidth returns the greatest width at which to can be reached or, if to is negative, computes
// the greatest width for every node. Labels and queue hold the negated width, so that the widest
// comes first. It excludes arcs for which skip returns true.
func (g *Graph) maxWidth(s *search, from, to int, width Weights, skip func(arc int32) bool) (float64, bool) {
	s.reset()
	s.labels[from] = label{cost: math.Inf(-1), arc: -1, mark: s.mark}
	s.queue.push(item{cost: math.Inf(-1), node: int32(from)})
	for len(s.queue) > 0 {
		it := s.queue.pop()
		l := &s.labels[it.node]
		if l.settled {
			continue
		}
		l.settled = true
		if int(it.node) == to {
			return -l.cost, true
		}
		for at := g.first[it.node]; at < g.first[it.node+1]; at++ {
			arc, head := g.id[at], g.head[at]
			if skip(arc) {
				continue
			}
			negated := max(it.cost, -width[arc])
			h := &s.labels[head]
			if h.mark == s.mark && (h.settled || h.cost <= negated) {
				continue
			}
			*h = label{cost: negated, arc: arc, mark: s.mark}
			s.queue.push(item{cost: negated, node: head})
		}
	}
	return 0, false
}

// widest solves problems whose objective is the width. With one bound it uses bisection. With
// several, if the widest of all paths meets the bounds, that is the answer; otherwise the exact
// search finds the greatest width. In both cases it then searches for the cheapest path of that
// width. One search cannot do both: a label that keeps only the best width and cost of a node
// drops the narrower, cheaper path, which is better if a narrow arc later on makes both paths
// equally wide.
func (s *solver) widest() (Solution, error) {
	if len(s.p.Bounds) == 1 {
		return s.widestWithin()
	}
	m := s.g.pool.Get().(*search)
	wide, ok := s.g.maxWidth(m, s.p.From, s.p.To, s.p.Width, s.skip)
	s.g.pool.Put(m)
	if !ok {
		return Solution{}, &NoPathError{Reason: Disconnected}
	}
	if found, err := s.atWidth(wide); err == nil {
		if len(s.p.Bounds) == 0 {
			found.Algorithm = ShortestWidest
		}
		return found, nil
	}
	if err := s.searchBounds(); err != nil {
		return Solution{}, err
	}
	s.prune()
	r := s.g.reverse()
	back := r.pool.Get().(*search)
	s.remaining[len(s.p.Bounds)] = back
	r.maxWidth(back, s.p.To, -1, s.p.Width, s.skip)
	s.gap.low, s.exactDeadline = -wide, part(s.deadline, 2)
	end, bound := s.labelSetting()
	switch end {
	case exhausted:
		return Solution{}, &NoPathError{Reason: Together}
	case limited:
		return s.wideEnough(-bound)
	}
	found := Solution{Path: s.pathOf(end), Algorithm: LabelSetting, Labels: len(s.paths)}
	found.Value = narrowest(s.p.Width, found.Path.Arcs)
	found.Bound, found.Exact = found.Value, true
	if cheaper, err := s.atWidth(found.Value); err == nil {
		found.Path = cheaper.Path
	}
	return found, nil
}

// atWidth returns the cheapest path of at least this width. No path that meets the bounds is wider.
func (s *solver) atWidth(width float64) (Solution, error) {
	p := *s.p
	p.Widest, p.MinWidth = false, width
	found, err := s.g.solve(&p, s.exactDeadline)
	found.Value, found.Bound, found.Exact = width, width, true
	return found, err
}

// wideEnough returns an answer for an exact search that has reached its limit: the widest of the
// paths that are each the shortest in one bound. bound is a width that no path exceeds.
func (s *solver) wideEnough(bound float64) (Solution, error) {
	best := Solution{Value: -1, Bound: bound, Algorithm: Relaxation, Labels: len(s.paths)}
	for i := range s.p.Bounds {
		arcs := s.pathFrom(s.remaining[i], s.p.From)
		if width := narrowest(s.p.Width, arcs); width > best.Value && s.p.meets(arcs) {
			best.Path, best.Value = Path{Arcs: arcs, Cost: sum(s.p.Cost, arcs)}, width
		}
	}
	if best.Value < 0 {
		return Solution{}, ErrUndecided
	}
	best.Exact = best.Value >= bound
	return best, nil
}

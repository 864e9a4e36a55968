package graph

import "math"

// maxWidth finds the greatest width at which to can be reached or, with to
// negative, at which every node can. Labels and queue hold the width negated, so
// that the widest comes first. Arcs for which skip says true are left out.
func (g *Graph) maxWidth(s *search, from, to int, width Weights, skip func(arc int32) bool) (float64, bool) {
	s.reset()
	s.labels[from] = label{cost: math.Inf(-1), arc: -1, mark: s.mark}
	s.queue.push(item{cost: math.Inf(-1), node: int32(from)})
	for len(s.queue) > 0 {
		it := s.queue.pop()
		l := &s.labels[it.node]
		if l.done {
			continue
		}
		l.done = true
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
			if h.mark == s.mark && (h.done || h.cost <= negated) {
				continue
			}
			*h = label{cost: negated, arc: arc, mark: s.mark}
			s.queue.push(item{cost: negated, node: head})
		}
	}
	return 0, false
}

// widest solves problems whose objective is the width. With one bound that is
// bisection. With several, if the widest path of all can be had within the bounds, that
// is it; else the exact search finds how wide a path can be. In both cases the cheapest
// path of that width is searched then. One search cannot do both: a label that keeps only
// the best width and cost of a node throws away the narrower, cheaper way that wins once a
// narrow arc later on makes the difference in width void.
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
	if err := s.lookBack(); err != nil {
		return Solution{}, err
	}
	s.prune()
	r := s.g.reverse()
	back := r.pool.Get().(*search)
	s.rest[len(s.p.Bounds)] = back
	r.maxWidth(back, s.p.To, -1, s.p.Width, s.skip)
	s.gap.low, s.exactBy = -wide, share(s.deadline, 2)
	end, bound := s.settle()
	switch end {
	case exhausted:
		return Solution{}, &NoPathError{Reason: Together}
	case limited:
		return s.wideEnough(-bound)
	}
	found := Solution{Path: s.way(end), Algorithm: LabelSetting, Labels: len(s.states)}
	found.Value = narrowest(s.p.Width, found.Path.Arcs)
	found.Bound, found.Exact = found.Value, true
	if cheaper, err := s.atWidth(found.Value); err == nil {
		found.Path = cheaper.Path
	}
	return found, nil
}

// atWidth is the cheapest path of at least this width, which none can exceed.
func (s *solver) atWidth(width float64) (Solution, error) {
	p := *s.p
	p.Widest, p.MinWidth = false, width
	found, err := s.g.solve(&p, s.exactBy)
	found.Value, found.Bound, found.Exact = width, width, true
	return found, err
}

// wideEnough answers what the exact search could not within its limit: the widest
// of the paths that are best in one bound each.
func (s *solver) wideEnough(bound float64) (Solution, error) {
	best := Solution{Value: -1, Bound: bound, Algorithm: Relaxation, Labels: len(s.states)}
	for i := range s.p.Bounds {
		arcs := s.follow(s.rest[i], s.p.From)
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

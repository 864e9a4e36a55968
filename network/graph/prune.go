package graph

// prune excludes arcs that cannot be part of a path within the bounds (Aneja, Aggarwal and Nair,
// "Shortest Chain Subject to Side Constraints", Networks 13, 1983). An arc is excluded if the
// shortest path from the start to the arc, the arc, and the shortest path on to the end together
// exceed a bound. Usually a small part of the graph remains.
func (s *solver) prune() {
	m := s.g.pool.Get().(*search)
	defer s.g.pool.Put(m)
	for i, b := range s.p.Bounds {
		m.reset()
		s.g.run(m, s.p.From, -1, b.Weights, func(arc int32) bool { return !s.usable[arc] || !s.canLead(m, i, arc) })
		for arc := range s.usable {
			s.usable[arc] = s.usable[arc] && s.canLead(m, i, int32(arc))
		}
	}
}

// canLead reports whether the shortest path to an arc, as the forward search has found it, can
// continue along the arc to the end within a bound.
func (s *solver) canLead(ahead *search, bound int, arc int32) bool {
	ends, b := &s.g.arcs[arc], &s.p.Bounds[bound]
	before, ok := ahead.known(int32(ends.From))
	if !ok {
		return false
	}
	after, ok := s.remaining[bound].known(int32(ends.To))
	return ok && within(before.cost+b.Weights[arc]+after.cost, b.Max)
}

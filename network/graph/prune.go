package graph

// prune closes the arcs that no path within the bounds has (Aneja, Aggarwal and Nair,
// "Shortest Chain Subject to Side Constraints", Networks 13, 1983): where the least way
// from the start, the arc, and the least way on to the end exceed a bound together. What
// is searched afterwards is mostly a small part of the graph.
func (s *solver) prune() {
	m := s.g.pool.Get().(*search)
	defer s.g.pool.Put(m)
	for i, b := range s.p.Bounds {
		m.reset()
		s.g.run(m, s.p.From, -1, b.Weights, func(arc int32) bool { return !s.open[arc] || !s.passes(m, i, arc) })
		for arc := range s.open {
			s.open[arc] = s.open[arc] && s.passes(m, i, int32(arc))
		}
	}
}

// passes reports whether the least way to an arc, as a search ahead knows it, can go on
// by the arc to the end within a bound.
func (s *solver) passes(ahead *search, bound int, arc int32) bool {
	ends, b := &s.g.arcs[arc], &s.p.Bounds[bound]
	before, ok := ahead.known(int32(ends.From))
	if !ok {
		return false
	}
	after, ok := s.rest[bound].known(int32(ends.To))
	return ok && within(before.cost+b.Weights[arc]+after.cost, b.Max)
}

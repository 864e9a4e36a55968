package graph

import "math"

// CostsTo are the costs of the shortest paths from each node to one, +Inf where there is none.
func (g *Graph) CostsTo(to int, w Weights) []float64 {
	out := make([]float64, g.Nodes())
	for i := range out {
		out[i] = math.Inf(1)
	}
	r := g.reverse()
	if !r.check(to, to, w) {
		return out
	}
	s := r.pool.Get().(*search)
	defer r.pool.Put(s)
	s.reset()
	r.run(s, to, -1, w, nil)
	for n := range out {
		if l := s.labels[n]; l.mark == s.mark {
			out[n] = l.cost
		}
	}
	return out
}

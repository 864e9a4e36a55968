package graph

import "math"

// LeastThrough gives for each arc the least cost of going from one node to another
// by it, +Inf where there is no such way. It says why an arc is of no use: every way
// over it is too long. The way leaves the first node and enters the last only once;
// others it may pass twice.
func (g *Graph) LeastThrough(from, to int, w Weights) []float64 {
	ahead, ok := g.ShortestTree(from, w)
	if !ok {
		return nil
	}
	back := g.CostsTo(to, w)
	if back == nil {
		return nil
	}
	out := make([]float64, len(g.arcs))
	for i, a := range g.arcs {
		out[i] = math.Inf(1)
		if usable(w[i]) && a.To != from && a.From != to {
			out[i] = ahead.cost[a.From] + w[i] + back[a.To]
		}
	}
	return out
}

// CostsTo are the costs of the shortest paths from each node to one, +Inf where there is none;
// nil if that does not exist, or there is not one weight for each arc.
func (g *Graph) CostsTo(to int, w Weights) []float64 {
	back, ok := g.reverse().ShortestTree(to, w)
	if !ok {
		return nil
	}
	return back.cost
}

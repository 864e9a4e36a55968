package graph

import "math"

// LeastThrough returns for each arc the least cost of a walk between two nodes that uses the arc,
// or +Inf if there is none. If this cost is too high, no path over the arc is of use. The walk
// leaves from and enters to only once; it may pass other nodes twice.
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

// CostsTo returns the cost of the shortest path from each node to the node to, or +Inf if there is
// none. It returns nil if to does not exist, or if there is not one weight for each arc.
func (g *Graph) CostsTo(to int, w Weights) []float64 {
	back, ok := g.reverse().ShortestTree(to, w)
	if !ok {
		return nil
	}
	return back.cost
}

// HopsTo returns the length in arcs of the shortest path from each node to the node to, or +Inf if
// there is none. nearest lists the nodes from which there is a path, nearest first. HopsTo returns
// nil if to does not exist.
func (g *Graph) HopsTo(to int) (hops []float64, nearest []int32) {
	if to < 0 || to >= g.Nodes() {
		return nil, nil
	}
	back := g.reverse()
	hops, nearest = make([]float64, g.Nodes()), make([]int32, 1, g.Nodes())
	for n := range hops {
		hops[n] = math.Inf(1)
	}
	hops[to], nearest[0] = 0, int32(to)
	for i := 0; i < len(nearest); i++ {
		n := nearest[i]
		for _, far := range back.head[back.first[n]:back.first[n+1]] {
			if math.IsInf(hops[far], 1) {
				hops[far] = hops[n] + 1
				nearest = append(nearest, far)
			}
		}
	}
	return hops, nearest
}

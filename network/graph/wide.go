package graph

import "math"

// MostLonger is by how many arcs a path that WidestPath finds may be longer than the shortest.
const MostLonger = 2

// WidestPath finds, of the paths that are longer by so many arcs than the shortest at most, the
// one whose narrowest arc is widest, and of several the shortest, with its width. width tells how
// wide an arc is; one that is not wider than zero takes no part. It is asked only about arcs that
// the search comes to, which on a large graph with many short paths are few. toward are the
// lengths of the shortest paths from each node to the end, as HopsTo tells them. It is false if
// there is no path, or a node does not exist.
func (g *Graph) WidestPath(from, to, longer int, width func(arc int) float64, toward []float64) (Path, float64, bool) {
	n := g.Nodes()
	if from < 0 || from >= n || to < 0 || to >= n || longer < 0 || longer > MostLonger || len(toward) != n || math.IsInf(toward[from], 1) {
		return Path{}, 0, false
	}
	if from == to {
		return Path{}, math.Inf(1), true
	}
	s := g.wide.Get().(*search)
	defer g.wide.Put(s)
	// No path is wider than the widest arc at each of its ends. Arcs that are at least as
	// wide are alike, and the search goes straight on by them.
	most := min(g.widestFrom(from, width), g.reverse().widestFrom(to, width))
	end, ok := g.lead(s, from, to, longer, toward, func(arc int) float64 { return min(most, width(arc)) })
	if !ok {
		return Path{}, 0, false
	}
	l := s.labels[end]
	wide := -l.cost
	p := Path{Arcs: make([]int, l.hops), Cost: float64(l.hops)}
	for i := len(p.Arcs) - 1; i >= 0; i-- {
		p.Arcs[i] = int(l.arc)
		l = s.labels[g.state(g.arcs[l.arc].From, i, from, toward)]
	}
	return p, wide, true
}

// widestFrom is the width of the widest arc that leaves a node.
func (g *Graph) widestFrom(node int, width func(arc int) float64) (most float64) {
	for _, arc := range g.id[g.first[node]:g.first[node+1]] {
		most = max(most, width(int(arc)))
	}
	return most
}

// state is the label of a node that is reached by so many arcs: there is one for each number of
// arcs by which a path that goes on by the shortest way is longer than the shortest.
func (g *Graph) state(node, hops, from int, toward []float64) int32 {
	return int32(node*(MostLonger+1) + hops + int(toward[node]-toward[from]))
}

// lead settles states by falling width, and among equal ones those of shorter paths first, until
// one of the end is settled. Costs are widths, negated. A path that comes to a node twice is no
// wider than without the circle, and longer: it is never the first.
func (g *Graph) lead(s *search, from, to, longer int, toward []float64, width func(arc int) float64) (end int32, ok bool) {
	s.reset()
	start := g.state(from, 0, from, toward)
	s.labels[start] = label{cost: math.Inf(-1), arc: -1, mark: s.mark}
	s.queue.push(item{cost: math.Inf(-1), node: start})
	for len(s.queue) > 0 {
		it := s.queue.pop()
		l := &s.labels[it.node]
		if l.done {
			continue
		}
		l.done = true
		node := int(it.node) / (MostLonger + 1)
		if node == to {
			return it.node, true
		}
		for at := g.first[node]; at < g.first[node+1]; at++ {
			arc, head := g.id[at], int(g.head[at])
			more := float64(l.hops+1) + toward[head] - toward[from]
			if more > float64(longer) { // also of a node from which there is no way
				continue
			}
			state := g.state(head, int(l.hops)+1, from, toward)
			h := &s.labels[state]
			if h.mark == s.mark && h.done {
				continue
			}
			cost := max(l.cost, -width(int(arc)))
			if cost >= 0 || h.mark == s.mark && h.cost <= cost {
				continue
			}
			*h = label{cost: cost, hops: l.hops + 1, arc: arc, mark: s.mark}
			s.queue.push(item{cost: cost, hops: int32(more), node: state})
		}
	}
	return 0, false
}

package graph

import "math"

// MostLonger is the largest number of arcs by which a path from WidestPath may be longer than the
// shortest path.
const MostLonger = 2

// WidestPath returns the widest path, and its width, among the paths whose number of arcs exceeds
// that of the shortest path by at most longer. The width of a path is that of its narrowest arc.
// Of several widest paths it returns the shortest. width returns the width of an arc; an arc that
// is not wider than zero is excluded.
// width is called only for the arcs that the search reaches, which are few in a large graph with
// many short paths. toward holds the lengths of the shortest paths from each node to the end, as
// HopsTo returns them. WidestPath returns false if there is no path, or a node does not exist.
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
	// No path is wider than the widest arc at its start, nor than the widest arc at its end. Arcs
	// that are wider than this limit are treated as equal, so that the search follows them directly.
	most := min(g.widestFrom(from, width), g.reverse().widestFrom(to, width))
	end, ok := g.runWide(s, from, to, longer, toward, func(arc int) float64 { return min(most, width(arc)) })
	if !ok {
		return Path{}, 0, false
	}
	l := s.labels[end]
	wide := -l.cost
	p := Path{Arcs: make([]int, l.hops), Cost: float64(l.hops)}
	for i := len(p.Arcs) - 1; i >= 0; i-- {
		p.Arcs[i] = int(l.arc)
		l = s.labels[g.wideState(g.arcs[l.arc].From, i, from, toward)]
	}
	return p, wide, true
}

// widestFrom returns the width of the widest arc that leaves a node.
func (g *Graph) widestFrom(node int, width func(arc int) float64) (most float64) {
	for _, arc := range g.id[g.first[node]:g.first[node+1]] {
		most = max(most, width(int(arc)))
	}
	return most
}

// wideState returns the number of the label for a node that is reached by hops arcs. A node has one
// label for each number from 0 to MostLonger. That number says how many arcs longer than the
// shortest path a path becomes if it continues from the node in the shortest way.
func (g *Graph) wideState(node, hops, from int, toward []float64) int32 {
	return int32(node*(MostLonger+1) + hops + int(toward[node]-toward[from]))
}

// runWide settles states by falling width, and among equal ones those of shorter paths first,
// until a state of the end is settled. Costs are negated widths. A path that visits a node twice
// is longer than without the loop, and no wider, so it is never settled first.
func (g *Graph) runWide(s *search, from, to, longer int, toward []float64, width func(arc int) float64) (end int32, ok bool) {
	s.reset()
	start := g.wideState(from, 0, from, toward)
	s.labels[start] = label{cost: math.Inf(-1), arc: -1, mark: s.mark}
	s.queue.push(item{cost: math.Inf(-1), node: start})
	for len(s.queue) > 0 {
		it := s.queue.pop()
		l := &s.labels[it.node]
		if l.settled {
			continue
		}
		l.settled = true
		node := int(it.node) / (MostLonger + 1)
		if node == to {
			return it.node, true
		}
		for at := g.first[node]; at < g.first[node+1]; at++ {
			arc, head := g.id[at], int(g.head[at])
			more := float64(l.hops+1) + toward[head] - toward[from]
			if more > float64(longer) { // also excludes nodes from which there is no path
				continue
			}
			state := g.wideState(head, int(l.hops)+1, from, toward)
			h := &s.labels[state]
			if h.mark == s.mark && h.settled {
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

package graph

import "math"

// MostLonger is the largest number of arcs by which a path that WidestPath finds may be longer
// than the shortest.
const MostLonger = 2

// WidestPath returns the path with the widest narrowest arc, and its width, among the paths that
// have at most longer arcs more than the shortest. Of several such paths it returns the
// shortest. width returns the width of an arc; an arc that is not wider than zero is excluded.
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
	// No path is wider than the widest arc at each of its ends. Treating all wider arcs as equal
	// lets the search follow them directly.
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

// wideState returns the number of the label for a node that is reached with the given number of
// arcs. A node has one label for each number of arcs by which a path, continued by the shortest
// one, is longer than the shortest.
func (g *Graph) wideState(node, hops, from int, toward []float64) int32 {
	return int32(node*(MostLonger+1) + hops + int(toward[node]-toward[from]))
}

// runWide settles states by falling width, and among equal ones those of shorter paths first,
// until a state of the end is settled. Costs are negated widths. A path that visits a node twice
// is no wider than without the loop, and longer, so it is never the first.
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

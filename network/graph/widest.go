package graph

import "math"

// WidestPath returns the path whose narrowest arc is as wide as any path allows
// and, among those, the one of least cost (shortest-widest), with that width.
// A path without arcs is infinitely wide.
//
// One search cannot do both: a label that keeps only the best (width, cost) of a
// node throws away the narrower, cheaper way that wins once a narrow arc later
// on makes the difference in width void. So the width is found first, and then
// the shortest path among the arcs that are wide enough.
func (g *Graph) WidestPath(from, to int, width, cost Weights) (p Path, w float64, ok bool) {
	if !g.check(from, to, width) || !g.check(from, to, cost) {
		return Path{}, 0, false
	}
	s := g.pool.Get().(*search)
	defer g.pool.Put(s)
	best, ok := g.maxWidth(s, from, to, width, cost)
	if !ok {
		return Path{}, 0, false
	}
	s.reset()
	narrow := func(arc int32) bool { return !usable(width[arc]) || width[arc] < best }
	if !g.run(s, from, to, cost, narrow) {
		return Path{}, 0, false
	}
	return g.path(s, to), best, true
}

// maxWidth finds the greatest width at which to can be reached. Labels and queue
// hold the width negated, so that the widest comes first.
func (g *Graph) maxWidth(s *search, from, to int, width, cost Weights) (float64, bool) {
	s.reset()
	s.labels[from] = label{cost: math.Inf(-1), mark: s.mark}
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
			if !usable(width[arc]) || !usable(cost[arc]) {
				continue
			}
			negated := max(it.cost, -width[arc])
			h := &s.labels[head]
			if h.mark == s.mark && (h.done || h.cost <= negated) {
				continue
			}
			*h = label{cost: negated, mark: s.mark}
			s.queue.push(item{cost: negated, node: head})
		}
	}
	return 0, false
}

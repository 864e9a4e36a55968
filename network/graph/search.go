package graph

import "math"

// label is the best path to a node that a search has found so far.
type label struct {
	cost    float64
	hops    int32
	arc     int32 // the last arc of the path, -1 at the start
	mark    uint32
	settled bool
}

// search is the working memory of one search, reused between searches. A label belongs to the
// present search if its mark equals the search's, so nothing has to be cleared.
type search struct {
	labels []label
	queue  queue
	mark   uint32
	banned []uint32 // per node, used by KShortestPaths: equal to mark when banned
}

func newSearch(nodes int) *search {
	return &search{labels: make([]label, nodes), banned: make([]uint32, nodes)}
}

// reset invalidates all labels of earlier searches.
func (s *search) reset() {
	s.queue = s.queue[:0]
	s.mark++
	if s.mark == 0 { // the counter has wrapped, and old marks could look new
		for i := range s.labels {
			s.labels[i].mark, s.banned[i] = 0, 0
		}
		s.mark = 1
	}
}

// known returns the label of a node, and reports whether this search has reached the node.
func (s *search) known(node int32) (*label, bool) {
	l := &s.labels[node]
	return l, l.mark == s.mark
}

// better reports whether a path that arrives at the node of l by arc, with this cost and length,
// is better than the path in l.
func (s *search) better(l *label, cost float64, hops, arc int32) bool {
	switch {
	case l.mark != s.mark:
		return true
	case cost != l.cost:
		return cost < l.cost
	case hops != l.hops:
		return hops < l.hops
	default:
		return arc < l.arc
	}
}

// run settles nodes in order of (cost, hops) from the start until to is settled or, if to is
// negative, all reachable nodes. It excludes arcs for which skip returns true.
func (g *Graph) run(s *search, from, to int, w Weights, skip func(arc int32) bool) bool {
	s.labels[from] = label{arc: -1, mark: s.mark}
	s.queue.push(item{node: int32(from)})
	for len(s.queue) > 0 {
		it := s.queue.pop()
		l := &s.labels[it.node]
		if l.settled || it.cost != l.cost || it.hops != l.hops {
			continue
		}
		l.settled = true
		if int(it.node) == to {
			return true
		}
		for at := g.first[it.node]; at < g.first[it.node+1]; at++ {
			arc, head := g.id[at], g.head[at]
			cost, hops := it.cost+w[arc], it.hops+1
			h := &s.labels[head]
			if !usable(w[arc]) || s.banned[head] == s.mark || h.mark == s.mark && h.settled ||
				!s.better(h, cost, hops, arc) || skip != nil && skip(arc) {
				continue
			}
			known := h.mark == s.mark && h.cost == cost && h.hops == hops
			*h = label{cost: cost, hops: hops, arc: arc, mark: s.mark}
			if !known { // otherwise the queue has the node with this key already
				s.queue.push(item{cost: cost, hops: hops, node: head})
			}
		}
	}
	return to < 0
}

// path reconstructs the path to a settled node from the labels.
func (g *Graph) path(s *search, to int) Path {
	l := s.labels[to]
	p := Path{Arcs: make([]int, l.hops), Cost: l.cost}
	for i := len(p.Arcs) - 1; i >= 0; i-- {
		p.Arcs[i] = int(l.arc)
		l = s.labels[g.arcs[l.arc].From]
	}
	return p
}

// item is a node in the queue, with the key that it had when it was added.
type item struct {
	cost float64
	hops int32
	node int32
}

func (a item) less(b item) bool {
	return a.cost < b.cost || a.cost == b.cost && a.hops < b.hops
}

// queue is a four-ary heap, which is half as deep as a binary one and makes better use of
// caches.
type queue []item

func (q *queue) push(it item) {
	h := append(*q, it)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !it.less(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = it
	*q = h
}

func (q *queue) pop() item {
	h := *q
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		least := 4*i + 1
		if least >= len(h) {
			break
		}
		for c := least + 1; c < min(4*i+5, len(h)); c++ {
			if h[c].less(h[least]) {
				least = c
			}
		}
		if !h[least].less(last) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = last
	return top
}

// ShortestPath returns the path of least cost. It returns false if there is none, if a node does
// not exist, or if there is not one weight for each arc.
func (g *Graph) ShortestPath(from, to int, w Weights) (Path, bool) {
	if !g.check(from, to, w) {
		return Path{}, false
	}
	s := g.pool.Get().(*search)
	defer g.pool.Put(s)
	s.reset()
	if !g.run(s, from, to, w, nil) {
		return Path{}, false
	}
	return g.path(s, to), true
}

// Tree holds the shortest paths from one node to all others.
type Tree struct {
	g    *Graph
	arc  []int32
	cost []float64
}

// ShortestTree returns the shortest paths from one node to all others.
func (g *Graph) ShortestTree(from int, w Weights) (*Tree, bool) {
	if !g.check(from, from, w) {
		return nil, false
	}
	s := g.pool.Get().(*search)
	defer g.pool.Put(s)
	s.reset()
	g.run(s, from, -1, w, nil)
	t := &Tree{g: g, arc: make([]int32, g.Nodes()), cost: make([]float64, g.Nodes())}
	for n := range t.arc {
		if l := s.labels[n]; l.mark == s.mark {
			t.arc[n], t.cost[n] = l.arc, l.cost
		} else {
			t.arc[n], t.cost[n] = -1, math.Inf(1)
		}
	}
	return t, true
}

// Cost returns the cost of reaching the node, +Inf if it cannot be reached.
func (t *Tree) Cost(to int) float64 { return t.cost[to] }

// Reaches reports whether there is a path to the node.
func (t *Tree) Reaches(to int) bool { return !math.IsInf(t.cost[to], 1) }

// Path returns the shortest path to the node.
func (t *Tree) Path(to int) (Path, bool) {
	if !t.Reaches(to) {
		return Path{}, false
	}
	p := Path{Cost: t.cost[to]}
	for n := to; t.arc[n] >= 0; n = t.g.arcs[t.arc[n]].From {
		p.Arcs = append(p.Arcs, int(t.arc[n]))
	}
	for i, j := 0, len(p.Arcs)-1; i < j; i, j = i+1, j-1 {
		p.Arcs[i], p.Arcs[j] = p.Arcs[j], p.Arcs[i]
	}
	return p, true
}

package graph

import (
	"math"
	"slices"
)

// Disjointness selects whether disjoint paths may have nodes in common.
type Disjointness int

// Edge-disjoint paths may cross in a node; node-disjoint paths share only their ends.
const (
	EdgeDisjoint Disjointness = iota
	NodeDisjoint
)

// DisjointPaths returns up to k disjoint paths with the least total cost for that number of
// paths, the cheapest first. If fewer than k exist, it returns all of them. Two paths never use
// the two directions between one pair of nodes, so paths disjoint in arcs are disjoint in links
// too.
//
// It uses Suurballe's algorithm for any k: each round sends one more unit of flow along the
// cheapest path through the residual network, with costs reduced by the potentials of earlier
// rounds so that they stay non-negative.
func (g *Graph) DisjointPaths(from, to, k int, w Weights, d Disjointness) []Path {
	if !g.check(from, to, w) || from == to || k < 1 {
		return nil
	}
	f := newFlow(g, from, to, w, d)
	for range k {
		if !f.augment() {
			break
		}
	}
	f.cancelOpposites()
	return f.paths()
}

// flow is a flow network with arcs of capacity one. The residual twin of arc i is arc i^1. With
// NodeDisjoint, each node n of the graph becomes two nodes, joined by one arc: arcs arrive at n,
// and leave from n+nodes.
type flow struct {
	g          *Graph
	from, to   int
	w          Weights
	split      bool
	first      []int32 // arcs leaving a node, as a linked list
	next       []int32
	head       []int32
	cost       []float64
	spare      []bool
	arc        []int32 // the arc of the graph for this arc, -1 for none
	potentials []float64
}

func newFlow(g *Graph, from, to int, w Weights, d Disjointness) *flow {
	n := g.Nodes()
	f := &flow{g: g, from: from, to: to, w: w, split: d == NodeDisjoint}
	if f.split {
		n *= 2
		f.from = from + g.Nodes()
	}
	f.first = make([]int32, n)
	for i := range f.first {
		f.first[i] = -1
	}
	f.potentials = make([]float64, n)
	for i, a := range g.arcs {
		if usable(w[i]) && a.From != a.To {
			f.add(f.outNode(a.From), a.To, w[i], int32(i))
		}
	}
	if f.split {
		for v := range g.Nodes() {
			f.add(v, f.outNode(v), 0, -1)
		}
	}
	return f
}

func (f *flow) outNode(node int) int {
	if f.split {
		return node + f.g.Nodes()
	}
	return node
}

func (f *flow) add(from, to int, cost float64, arc int32) {
	i := int32(len(f.head))
	f.head = append(f.head, int32(to), int32(from))
	f.cost = append(f.cost, cost, -cost)
	f.spare = append(f.spare, true, false)
	f.arc = append(f.arc, arc, -1)
	f.next = append(f.next, f.first[from], f.first[to])
	f.first[from], f.first[to] = i, i+1
}

// augment sends one more unit of flow, and reports whether that was possible.
func (f *flow) augment() bool {
	labels := make([]label, len(f.first))
	for i := range labels {
		labels[i] = label{cost: math.Inf(1), arc: -1}
	}
	labels[f.from].cost = 0
	q := queue{item{node: int32(f.from)}}
	for len(q) > 0 {
		it := q.pop()
		l := &labels[it.node]
		if l.settled || it.cost != l.cost || it.hops != l.hops {
			continue
		}
		l.settled = true
		for e := f.first[it.node]; e >= 0; e = f.next[e] {
			if !f.spare[e] {
				continue
			}
			h := &labels[f.head[e]]
			// Rounding can make a reduced cost slightly negative.
			reduced := max(0, f.cost[e]+f.potentials[it.node]-f.potentials[f.head[e]])
			cost, hops := it.cost+reduced, it.hops+1
			if h.settled || cost > h.cost || cost == h.cost && (hops > h.hops || hops == h.hops && e >= h.arc && h.arc >= 0) {
				continue
			}
			*h = label{cost: cost, hops: hops, arc: e}
			q.push(item{cost: cost, hops: hops, node: f.head[e]})
		}
	}
	reach := labels[f.to].cost
	if math.IsInf(reach, 1) {
		return false
	}
	for v := range labels {
		f.potentials[v] += min(labels[v].cost, reach)
	}
	for v := f.to; v != f.from; {
		e := labels[v].arc
		f.spare[e], f.spare[e^1] = false, true
		v = int(f.head[e^1])
	}
	return true
}

// carries reports whether e is an arc of the graph with flow through it.
func (f *flow) carries(e int) bool { return f.arc[e] >= 0 && !f.spare[e] }

// cancelOpposites removes flow that goes in both directions between two nodes. This does not
// change the cost: such flow exists only on arcs of cost zero.
func (f *flow) cancelOpposites() {
	carried := map[[2]int32]int{}
	for e := 0; e < len(f.head); e += 2 {
		if !f.carries(e) {
			continue
		}
		ends := [2]int32{f.head[e^1], f.head[e]}
		if f.split {
			ends[0] -= int32(f.g.Nodes())
		}
		if back, ok := carried[[2]int32{ends[1], ends[0]}]; ok && !f.spare[back] {
			f.spare[e], f.spare[back] = true, true
			delete(carried, [2]int32{ends[1], ends[0]})
			continue
		}
		carried[ends] = e
	}
}

// paths splits the flow into paths without repeated nodes.
func (f *flow) paths() []Path {
	leaving := make(map[int][]int)
	for e := 0; e < len(f.head); e += 2 {
		if f.carries(e) {
			a := int(f.arc[e])
			leaving[f.g.arcs[a].From] = append(leaving[f.g.arcs[a].From], a)
		}
	}
	start := f.from
	if f.split {
		start -= f.g.Nodes()
	}
	var paths []Path
	for len(leaving[start]) > 0 {
		p := Path{}
		for v := start; v != f.to; v = f.g.arcs[p.Arcs[len(p.Arcs)-1]].To {
			a := leaving[v][0]
			leaving[v] = leaving[v][1:]
			p.Arcs = append(p.Arcs, a)
		}
		p.Arcs = f.g.withoutLoops(p.Arcs) // only loops of cost zero are possible
		for _, a := range p.Arcs {
			p.Cost += f.w[a]
		}
		paths = append(paths, p)
	}
	slices.SortFunc(paths, comparePaths)
	return paths
}

// withoutLoops removes the parts of a walk that return to an earlier node.
func (g *Graph) withoutLoops(arcs []int) []int {
	if len(arcs) == 0 {
		return nil
	}
	at := map[int]int{g.arcs[arcs[0]].From: 0}
	var out []int
	for _, a := range arcs {
		out = append(out, a)
		v := g.arcs[a].To
		if n, seen := at[v]; seen {
			for _, dropped := range out[n:] {
				delete(at, g.arcs[dropped].To)
			}
			out = out[:n]
		}
		at[v] = len(out)
	}
	return out
}

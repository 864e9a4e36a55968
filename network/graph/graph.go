package graph

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// Arc is a directed edge between two nodes.
type Arc struct{ From, To int }

// Weights gives each arc its cost (or, for [Problem.Width], its width), in the order in which
// the arcs were given to [New]. An arc whose weight is negative, infinite or not a number is
// excluded from the search.
type Weights []float64

func usable(w float64) bool { return w >= 0 && w <= math.MaxFloat64 }

// Path is a chain of arcs, by number, and the sum of their costs. A path from a node to itself
// has no arcs.
type Path struct {
	Arcs []int
	Cost float64
}

// Graph is an immutable directed graph in compressed sparse rows: the arcs that leave node n are
// first[n] to first[n+1].
type Graph struct {
	arcs  []Arc
	first []int32
	head  []int32 // the node to which the arc in this row leads
	id    []int32 // the number of the arc in this row
	pool  sync.Pool
	wide  sync.Pool // searches for WidestPath, which need several labels for each node

	solvers     sync.Pool
	reverseOnce sync.Once
	reversed    *Graph
}

// New returns a graph of nodes 0 to nodes-1. Parallel arcs and loops are allowed.
func New(nodes int, arcs []Arc) (*Graph, error) {
	if nodes < 0 || nodes > math.MaxInt32-1 || len(arcs) > math.MaxInt32-1 {
		return nil, fmt.Errorf("graph: %d nodes and %d arcs: at most %d of each", nodes, len(arcs), math.MaxInt32-1)
	}
	g := &Graph{
		arcs:  slices.Clone(arcs),
		first: make([]int32, nodes+1),
		head:  make([]int32, len(arcs)),
		id:    make([]int32, len(arcs)),
	}
	for i, a := range arcs {
		if a.From < 0 || a.From >= nodes || a.To < 0 || a.To >= nodes {
			return nil, fmt.Errorf("graph: arc %d leads from %d to %d: nodes are 0 to %d", i, a.From, a.To, nodes-1)
		}
		g.first[a.From+1]++
	}
	for n := range nodes {
		g.first[n+1] += g.first[n]
	}
	next := slices.Clone(g.first)
	for i, a := range arcs {
		at := next[a.From]
		next[a.From]++
		g.head[at], g.id[at] = int32(a.To), int32(i)
	}
	g.pool.New = func() any { return newSearch(nodes) }
	g.wide.New = func() any { return newSearch(nodes * (MostLonger + 1)) }
	g.solvers.New = func() any { return newSolver(g) }
	return g, nil
}

// reverse returns the graph with the direction of each arc reversed; arcs keep their numbers.
func (g *Graph) reverse() *Graph {
	g.reverseOnce.Do(func() {
		arcs := make([]Arc, len(g.arcs))
		for i, a := range g.arcs {
			arcs[i] = Arc{From: a.To, To: a.From}
		}
		g.reversed, _ = New(g.Nodes(), arcs) // New has accepted these arcs before
	})
	return g.reversed
}

// Nodes returns the number of nodes.
func (g *Graph) Nodes() int { return len(g.first) - 1 }

// Arcs returns the number of arcs.
func (g *Graph) Arcs() int { return len(g.arcs) }

// Arc returns the ends of arc i.
func (g *Graph) Arc(i int) Arc { return g.arcs[i] }

func (g *Graph) check(from, to int, w Weights) bool {
	n := g.Nodes()
	return from >= 0 && from < n && to >= 0 && to < n && len(w) == len(g.arcs)
}

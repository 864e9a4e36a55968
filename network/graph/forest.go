package graph

import (
	"cmp"
	"slices"
)

// Edge is an undirected edge between two nodes with its weight.
type Edge struct {
	A, B   int
	Weight float64
}

// SpanningForest returns the numbers of the edges of a minimum spanning tree of each connected
// part (Kruskal), in ascending order. Among edges of equal weight the lower number is preferred,
// so the loss of an edge outside the forest changes nothing and the loss of one inside replaces
// only that one.
func SpanningForest(nodes int, edges []Edge) []int {
	order := make([]int, 0, len(edges))
	for i, e := range edges {
		if usable(e.Weight) && e.A != e.B {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(edges[a].Weight, edges[b].Weight), a-b)
	})
	parent := make([]int, nodes)
	for i := range parent {
		parent[i] = i
	}
	root := func(n int) int {
		for parent[n] != n {
			parent[n] = parent[parent[n]]
			n = parent[n]
		}
		return n
	}
	var chosen []int
	for _, i := range order {
		if a, b := root(edges[i].A), root(edges[i].B); a != b {
			parent[a] = b
			chosen = append(chosen, i)
		}
	}
	slices.Sort(chosen)
	return chosen
}

// Package graph searches paths in directed graphs kept in flat arrays. Start reading with
// graph.go for the graph, search.go for shortest paths, and solver.go for [Graph.Solve].
//
// A [Graph] is immutable: it is built once from a list of arcs and may then be searched by any
// number of goroutines. Nodes and arcs are numbers; the caller knows what they stand for. The
// costs of arcs are not part of the graph: each search takes [Weights], one per arc in the order
// in which the arcs were given, so the same graph serves hops, latency, utilisation or anything
// else.
//
// Every search is deterministic. Among paths of equal cost the one with fewer arcs wins, and
// among those the one whose last differing arc, seen from the destination, has the lower number.
// Two controllers, or one controller before and after a restart, choose the same path.
//
// [Graph.Solve] takes any mix of bounds with one objective. It is exact wherever that takes
// polynomial time. Elsewhere it is exact until a limit is reached; after that its answer comes
// with a bound on how much better the best path may be.
//
// In this package a *tail* is the rest of a path, from a node to the end. The package imports
// nothing of Sluice.
package graph

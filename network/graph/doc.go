// Package graph searches paths in directed graphs kept in flat arrays.
//
// A [Graph] is immutable: it is built once from a list of arcs and may then be
// searched by any number of goroutines. Nodes and arcs are numbers; the caller
// keeps what they stand for. What an arc costs is not part of the graph: each
// search takes [Weights], one per arc in the order in which the arcs were given,
// so the same graph serves hops, latency, utilisation or anything else.
//
// Every search is deterministic. Among paths of equal cost the one with fewer
// arcs wins, and among those the one whose last differing arc, seen from the
// destination, has the lower number. Two controllers, or one controller before
// and after a restart, choose the same path.
//
// [Graph.Solve] takes any mix of bounds with one objective. It is exact wherever that
// takes polynomial time, and elsewhere until a limit is reached, from which on its
// answer comes with a bound of how much better a path may exist.
//
// The package imports nothing of Sluice.
package graph

package graph

import (
	"cmp"
	"slices"
)

// KShortestPaths returns up to k different paths without repeated nodes, in ascending order of
// cost. It uses Yen's algorithm with Lawler's improvement: a path that was derived from another is
// varied only from the node on at which it left the other.
func (g *Graph) KShortestPaths(from, to, k int, w Weights) []Path {
	first, ok := g.ShortestPath(from, to, w)
	if !ok || k < 1 {
		return nil
	}
	s := g.pool.Get().(*search)
	defer g.pool.Put(s)
	found := []Path{first}
	deviation := []int{0}
	var candidates []candidate
	for len(found) < k {
		last := found[len(found)-1]
		for i := deviation[len(deviation)-1]; i < len(last.Arcs); i++ {
			c, ok := g.spur(s, found, last.Arcs[:i], from, to, w)
			if ok && !slices.ContainsFunc(candidates, func(o candidate) bool { return slices.Equal(o.Arcs, c.Arcs) }) {
				candidates = append(candidates, candidate{c, i})
			}
		}
		if len(candidates) == 0 {
			break
		}
		best := 0
		for i := range candidates {
			if comparePaths(candidates[i].Path, candidates[best].Path) < 0 {
				best = i
			}
		}
		found = append(found, candidates[best].Path)
		deviation = append(deviation, candidates[best].deviation)
		candidates = slices.Delete(candidates, best, best+1)
	}
	return found
}

// candidate is a path that may be the next result, and the place at which it leaves its parent.
type candidate struct {
	Path
	deviation int
}

// comparePaths orders paths by cost, then length, then arc numbers.
func comparePaths(a, b Path) int {
	return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(len(a.Arcs), len(b.Arcs)), slices.Compare(a.Arcs, b.Arcs))
}

// spur returns the best path that begins with root and continues differently from all paths
// found so far that begin with root.
func (g *Graph) spur(s *search, found []Path, root []int, from, to int, w Weights) (Path, bool) {
	s.reset()
	at, cost := from, 0.0
	for _, arc := range root {
		s.banned[at] = s.mark
		at = g.arcs[arc].To
		cost += w[arc]
	}
	var taken []int32
	for _, p := range found {
		if len(p.Arcs) > len(root) && slices.Equal(p.Arcs[:len(root)], root) {
			taken = append(taken, int32(p.Arcs[len(root)]))
		}
	}
	if !g.run(s, at, to, w, func(arc int32) bool { return slices.Contains(taken, arc) }) {
		return Path{}, false
	}
	rest := g.path(s, to)
	arcs := append(slices.Clone(root), rest.Arcs...)
	for _, arc := range rest.Arcs {
		cost += w[arc]
	}
	return Path{Arcs: arcs, Cost: cost}, true
}

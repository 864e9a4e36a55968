package graph

import (
	"math"
	"slices"
)

// widestWithin finds the widest path within one bound. That takes polynomial time:
// whether a path of at least some width meets the bound is one search of a shortest path,
// and the greatest width for which one does is found by bisection over the widths of the
// arcs that can be part of such a path. Which of the paths of that width is cheapest is
// the exact search's to find, which is hard only in this last step; should it reach the
// limit, the path that bisection has found is as wide.
func (s *solver) widestWithin() (Solution, error) {
	if err := s.lookBack(); err != nil {
		return Solution{}, err
	}
	best := s.follow(s.rest[0], s.p.From)
	width := narrowest(s.p.Width, best)
	s.closeBelow(width)
	s.prune()
	widths := s.widerThan(width)
	half := share(s.deadline, 2)
	low, high := 0, len(widths) // those before low can be had, those from high on cannot
	for low < high && !late(half) {
		mid := low + (high-low)/2
		if arcs, ok := s.reach(widths[mid]); ok {
			best, width = arcs, narrowest(s.p.Width, arcs)
			low, _ = slices.BinarySearch(widths, math.Nextafter(width, math.Inf(1)))
		} else {
			high = mid
		}
	}
	found := Solution{Path: Path{Arcs: best, Cost: sum(s.p.Cost, best)}, Value: width, Bound: width, Exact: low >= high, Algorithm: Bisection}
	if !found.Exact {
		found.Bound = widths[high-1]
		return found, nil
	}
	s.cheapen(&found)
	return found, nil
}

// closeBelow closes the arcs that are narrower.
func (s *solver) closeBelow(width float64) {
	for arc, w := range s.p.Width {
		s.open[arc] = s.open[arc] && w >= width
	}
}

// widerThan lists the widths of arcs that are wider, ascending, each once.
func (s *solver) widerThan(width float64) []float64 {
	var out []float64
	for arc, w := range s.p.Width {
		if s.open[arc] && w > width {
			out = append(out, w)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// reach finds a path of at least a width that meets the bound.
func (s *solver) reach(width float64) ([]int, bool) {
	m := s.g.pool.Get().(*search)
	defer s.g.pool.Put(m)
	if !s.ahead(m, 0, s.p.To, func(arc int32) bool { return !s.open[arc] || s.p.Width[arc] < width }) {
		return nil, false
	}
	arcs := s.g.path(m, s.p.To).Arcs
	return arcs, s.meets(arcs)
}

// cheapen replaces a path by the cheapest that is as wide.
func (s *solver) cheapen(found *Solution) {
	p := *s.p
	p.Widest, p.MinWidth = false, found.Value
	s.p, s.exactBy = &p, s.deadline
	s.closeBelow(found.Value)
	s.prune()
	end, _ := s.exact(0)
	if found.Labels = len(s.states); end >= 0 {
		found.Path = s.way(end)
	}
}

package graph

import (
	"math"
	"slices"
)

// widestWithin finds the widest path within one bound. The width takes polynomial time: one search
// of a shortest path decides whether a path of at least some width meets the bound. If a path of
// the greatest width of all paths meets the bound, that is the width; otherwise bisection finds
// it. Then the exact search looks for the cheapest path of that width, and only this last step is
// hard. If the exact search reaches the limit, the path that was found first is the answer,
// because it is as wide.
func (s *solver) widestWithin() (Solution, error) {
	if err := s.searchBounds(); err != nil {
		return Solution{}, err
	}
	m := s.g.pool.Get().(*search)
	most, _ := s.g.maxWidth(m, s.p.From, s.p.To, s.p.Width, s.skip)
	s.g.pool.Put(m)
	detours, bound := s.reducedWeights(), most
	best, ok := s.findWithin(most, detours)
	if !ok {
		best, bound = s.bisect(most, detours)
	}
	width := narrowest(s.p.Width, best)
	found := Solution{Path: Path{Arcs: best, Cost: sum(s.p.Cost, best)}, Value: width, Bound: bound, Exact: width == bound, Algorithm: Bisection}
	if found.Exact {
		s.makeCheapest(&found)
	}
	return found, nil
}

// bisect finds the widest path that meets the bound, if no path of the width most does. It
// searches among the widths of the arcs that can be part of a path. The second result is a width
// that no path within the bound exceeds.
func (s *solver) bisect(most float64, detours Weights) ([]int, float64) {
	best := s.pathFrom(s.remaining[0], s.p.From)
	width := narrowest(s.p.Width, best)
	s.closeBelow(width)
	s.prune()
	widths, half := s.widths(width, most), part(s.deadline, 2)
	low, high := 0, len(widths) // a path exists for widths before low, and none for those from high on
	for low < high && !expired(half) {
		mid := low + (high-low)/2
		if arcs, ok := s.findWithin(widths[mid], detours); ok {
			best, width = arcs, narrowest(s.p.Width, arcs)
			low, _ = slices.BinarySearch(widths, math.Nextafter(width, math.Inf(1)))
		} else {
			high = mid
		}
	}
	if low < high {
		return best, widths[high-1]
	}
	return best, width
}

// closeBelow excludes the arcs that are narrower than width.
func (s *solver) closeBelow(width float64) {
	for arc, w := range s.p.Width {
		s.usable[arc] = s.usable[arc] && w >= width
	}
}

// widths returns the distinct widths of arcs between two limits, ascending.
func (s *solver) widths(least, most float64) []float64 {
	var out []float64
	for arc, w := range s.p.Width {
		if s.usable[arc] && w > least && w < most {
			out = append(out, w)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// reducedWeights returns, for each arc, how much longer the shortest path to the end gets if it
// starts with the arc, compared with the shortest path from the arc's start, in the bound's
// weights. Shortest paths are the same with these weights, and a search with them goes in the
// direction of the end, as A* does.
func (s *solver) reducedWeights() Weights {
	s.mixed = s.mixed[:0]
	for arc, ends := range s.g.arcs {
		more := -1.0 // a negative weight excludes the arc
		if after, ok := s.remaining[0].known(int32(ends.To)); ok && s.usable[arc] {
			more = max(0, s.p.Bounds[0].Weights[arc]+after.cost-s.remaining[0].labels[ends.From].cost)
		}
		s.mixed = append(s.mixed, more)
	}
	return s.mixed
}

// findWithin finds a path of at least the given width that meets the bound.
func (s *solver) findWithin(width float64, detours Weights) ([]int, bool) {
	m := s.g.pool.Get().(*search)
	defer s.g.pool.Put(m)
	m.reset()
	most := s.p.Bounds[0].Max
	least := s.remaining[0].labels[s.p.From].cost
	tooLong := func(arc int32) bool {
		return s.p.Width[arc] < width || !within(least+m.labels[s.g.arcs[arc].From].cost+detours[arc], most)
	}
	if !s.g.run(m, s.p.From, s.p.To, detours, tooLong) {
		return nil, false
	}
	arcs := s.g.path(m, s.p.To).Arcs
	return arcs, s.p.meets(arcs)
}

// makeCheapest replaces the path by the cheapest one of the same width.
func (s *solver) makeCheapest(found *Solution) {
	p := *s.p
	p.Widest, p.MinWidth = false, found.Value
	s.p, s.exactDeadline = &p, s.deadline
	s.closeBelow(found.Value)
	s.prune()
	end, _ := s.exact(0)
	if found.Labels = len(s.paths); end >= 0 {
		found.Path = s.pathOf(end)
	}
}

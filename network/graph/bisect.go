package graph

import (
	"math"
	"slices"
)

// widestWithin finds the widest path within one bound. That takes polynomial time:
// whether a path of at least some width meets the bound is one search of a shortest path.
// If one is as wide as without the bound, that is it; else the greatest width that can be
// had is found by bisection. Which of the paths of that width is cheapest is the exact
// search's to find, which is hard only in this last step; should it reach the limit, the
// path that was found first is as wide.
func (s *solver) widestWithin() (Solution, error) {
	if err := s.lookBack(); err != nil {
		return Solution{}, err
	}
	m := s.g.pool.Get().(*search)
	most, _ := s.g.maxWidth(m, s.p.From, s.p.To, s.p.Width, s.skip)
	s.g.pool.Put(m)
	detours, bound := s.detours(), most
	best, ok := s.reach(most, detours)
	if !ok {
		best, bound = s.bisect(most, detours)
	}
	width := narrowest(s.p.Width, best)
	found := Solution{Path: Path{Arcs: best, Cost: sum(s.p.Cost, best)}, Value: width, Bound: bound, Exact: width == bound, Algorithm: Bisection}
	if found.Exact {
		s.cheapen(&found)
	}
	return found, nil
}

// bisect finds the widest path that meets the bound, if none of the greatest width does,
// among the widths of the arcs that can be part of one. The second result is a width that
// none exceeds.
func (s *solver) bisect(most float64, detours Weights) ([]int, float64) {
	best := s.follow(s.rest[0], s.p.From)
	width := narrowest(s.p.Width, best)
	s.closeBelow(width)
	s.prune()
	widths, half := s.widths(width, most), share(s.deadline, 2)
	low, high := 0, len(widths) // those before low can be had, those from high on cannot
	for low < high && !late(half) {
		mid := low + (high-low)/2
		if arcs, ok := s.reach(widths[mid], detours); ok {
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

// closeBelow closes the arcs that are narrower.
func (s *solver) closeBelow(width float64) {
	for arc, w := range s.p.Width {
		s.open[arc] = s.open[arc] && w >= width
	}
}

// widths lists the widths of arcs between two, ascending, each once.
func (s *solver) widths(least, most float64) []float64 {
	var out []float64
	for arc, w := range s.p.Width {
		if s.open[arc] && w > least && w < most {
			out = append(out, w)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// detours is by how much each arc makes a way to the end longer, in the bound's weights,
// than the least one from where the arc begins. Shortest paths are the same in them, and
// are found in the direction of the end, as by A*.
func (s *solver) detours() Weights {
	s.mixed = s.mixed[:0]
	for arc, ends := range s.g.arcs {
		more := -1.0 // takes no part
		if after, ok := s.rest[0].known(int32(ends.To)); ok && s.open[arc] {
			more = max(0, s.p.Bounds[0].Weights[arc]+after.cost-s.rest[0].labels[ends.From].cost)
		}
		s.mixed = append(s.mixed, more)
	}
	return s.mixed
}

// reach finds a path of at least a width that meets the bound.
func (s *solver) reach(width float64, detours Weights) ([]int, bool) {
	m := s.g.pool.Get().(*search)
	defer s.g.pool.Put(m)
	m.reset()
	most := s.p.Bounds[0].Max
	least := s.rest[0].labels[s.p.From].cost
	tooLong := func(arc int32) bool {
		return s.p.Width[arc] < width || !within(least+m.labels[s.g.arcs[arc].From].cost+detours[arc], most)
	}
	if !s.g.run(m, s.p.From, s.p.To, detours, tooLong) {
		return nil, false
	}
	arcs := s.g.path(m, s.p.To).Arcs
	return arcs, s.p.meets(arcs)
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

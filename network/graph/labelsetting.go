package graph

// partialPath is a path from the start to a node. It is dropped if another path to the same node
// is at least as good in every respect.
type partialPath struct {
	cost   float64
	sums   [MaxBounds]float64
	hops   int32
	node   int32
	arc    int32 // the last arc
	parent int32 // the path without that arc, -1 at the start
	older  int32 // the partial path settled before this one at the same node, -1 for none
}

// Results of the exact search other than the number of a path to the end.
const (
	exhausted int32 = -1 - iota // every partial path was examined
	limited                     // a limit was reached
)

// labelSetting is the exact search: label setting with dominance (Martins, "On a Multicriteria
// Shortest Path Problem", EJOR 16, 1984), in the order of A*. Partial paths are settled by
// ascending cost of the cheapest path that they can become, which the backward search has
// computed, so the first to reach the end is the best. A partial path is dropped if no
// completion can meet a bound, or if one that was settled at the same node is no worse in any
// respect. That also drops every path that returns to a node.
//
// With a guide it is branch and bound instead: the order is that of the guide's lower bounds,
// and the search continues until none of them is below the best path.
//
// The second result is the least cost that a path can have.
func (s *solver) labelSetting() (int32, float64) {
	s.paths, s.queue = s.paths[:0], s.queue[:0]
	for i := range s.latestAt {
		s.latestAt[i] = -1
	}
	s.start()
	bound := s.gap.low
	for popped := 1; len(s.queue) > 0; popped++ {
		top := s.queue.pop()
		at := &s.paths[top.node]
		node := at.node
		if s.dominated(at) {
			continue
		}
		bound = top.cost
		switch {
		case s.guide.active && s.gap.found && within(s.gap.best.Cost, bound):
			return exhausted, bound
		case int(node) == s.p.To && s.guide.active:
			s.offer(s.pathOf(top.node).Arcs)
			continue
		case int(node) == s.p.To:
			return top.node, bound
		case len(s.paths) >= s.p.Limit.Labels || popped%512 == 0 && expired(s.exactDeadline):
			return limited, bound
		}
		at.older, s.latestAt[node] = s.latestAt[node], top.node
		if s.guide.active {
			s.tryCompletions(top.node)
		}
		for place := s.g.first[node]; place < s.g.first[node+1]; place++ {
			s.extend(top.node, s.g.id[place], s.g.head[place])
		}
	}
	return exhausted, bound
}

// start queues the empty path.
func (s *solver) start() {
	first := partialPath{node: int32(s.p.From), parent: -1}
	goal, ok := s.remaining[len(s.p.Bounds)].known(first.node)
	if !ok {
		return
	}
	if s.p.Widest {
		first.cost = goal.cost
	}
	s.paths = append(s.paths, first)
	s.queue.push(item{cost: s.gap.low})
}

// extend queues a partial path that is longer by one arc, unless it is of no use.
func (s *solver) extend(from, arc, head int32) {
	goal, ok := s.remaining[len(s.p.Bounds)].known(head)
	if !ok || !s.usable[arc] {
		return
	}
	at := &s.paths[from]
	next := partialPath{hops: at.hops + 1, node: head, arc: arc, parent: from}
	for i, b := range s.p.Bounds {
		next.sums[i] = at.sums[i] + b.Weights[arc]
		least, ok := s.remaining[i].known(head)
		if !ok || !within(next.sums[i]+least.cost, b.Max) {
			return
		}
	}
	var key item
	if s.p.Widest { // only the greatest possible width of the path matters
		next.cost = max(at.cost, -s.p.Width[arc], goal.cost)
		key = item{cost: next.cost, hops: next.hops}
	} else {
		next.cost = at.cost + s.p.Cost[arc]
		key = item{cost: next.cost + goal.cost, hops: next.hops + goal.hops}
	}
	if s.dominated(&next) || s.p.MaxCost > 0 && !within(key.cost, s.p.MaxCost) || s.guide.active && !s.mayImprove(&next, &key) {
		return
	}
	key.node = int32(len(s.paths))
	s.paths = append(s.paths, next)
	s.queue.push(key)
}

// dominated reports whether a partial path that was settled at the same node is at least as good
// as at in every respect. Without a guide, the paths settled before cost no more, and with one
// bound the latest of them has the least sum.
func (s *solver) dominated(at *partialPath) bool {
	n := len(s.p.Bounds)
	for i := s.latestAt[at.node]; i >= 0; i = s.paths[i].older {
		o := &s.paths[i]
		if o.sums[0] <= at.sums[0] && (n < 2 || o.sums[1] <= at.sums[1]) && (n < 3 || o.sums[2] <= at.sums[2]) && (!s.guide.active || o.cost <= at.cost) {
			return true
		}
		if n == 1 && !s.guide.active {
			return false
		}
	}
	return false
}

// pathOf returns a partial path as a Path.
func (s *solver) pathOf(end int32) Path {
	arcs := make([]int, s.paths[end].hops)
	for i := end; s.paths[i].parent >= 0; i = s.paths[i].parent {
		arcs[s.paths[i].hops-1] = int(s.paths[i].arc)
	}
	return Path{Arcs: arcs, Cost: sum(s.p.Cost, arcs)}
}

package graph

// state is one way to a node, kept as long as no other way is at least as good in
// everything.
type state struct {
	cost   float64
	sums   [MaxBounds]float64
	hops   int32
	node   int32
	arc    int32 // by which it arrives
	parent int32 // state before that arc, -1 at the start
	older  int32 // state settled before this one at the same node, -1 for none
}

// How the exact search can end other than with the number of a state at the end.
const (
	exhausted int32 = -1 - iota // every way was looked at
	limited                     // a limit was reached
)

// settle is the exact search: label setting with dominance (Martins, "On a
// Multicriteria Shortest Path Problem", EJOR 16, 1984), in the order of A*. Ways
// are settled by ascending cost of the cheapest path that they can become, as the
// search backwards has found it, so the first to arrive is the best. A way is
// dropped when no completion can meet a bound, or when one settled at the same node
// is no worse in any respect. That also drops every way that comes back to a node.
//
// With a guide it is branch and bound instead: the order is that of the guide's
// lower bounds, and the search goes on until none is below the best path.
//
// The second result is the least cost that a path can have.
func (s *solver) settle() (int32, float64) {
	s.states, s.queue = s.states[:0], s.queue[:0]
	for i := range s.settled {
		s.settled[i] = -1
	}
	s.start()
	bound := s.gap.low
	for popped := 1; len(s.queue) > 0; popped++ {
		top := s.queue.pop()
		at := &s.states[top.node]
		node := at.node
		if s.dominated(at) {
			continue
		}
		bound = top.cost
		switch {
		case s.guide.on && s.gap.have && within(s.gap.best.Cost, bound):
			return exhausted, bound
		case int(node) == s.p.To && s.guide.on:
			s.offer(s.way(top.node).Arcs)
			continue
		case int(node) == s.p.To:
			return top.node, bound
		case len(s.states) >= s.p.Limit.Labels || popped%512 == 0 && late(s.exactBy):
			return limited, bound
		}
		at.older, s.settled[node] = s.settled[node], top.node
		if s.guide.on {
			s.complete(top.node)
		}
		for place := s.g.first[node]; place < s.g.first[node+1]; place++ {
			s.extend(top.node, s.g.id[place], s.g.head[place])
		}
	}
	return exhausted, bound
}

// start queues the way that has not left yet.
func (s *solver) start() {
	first := state{node: int32(s.p.From), parent: -1}
	goal, ok := s.rest[len(s.p.Bounds)].known(first.node)
	if !ok {
		return
	}
	if s.p.Widest {
		first.cost = goal.cost
	}
	s.states = append(s.states, first)
	s.queue.push(item{cost: s.gap.low})
}

// extend queues the way that goes on by an arc, unless it is of no use.
func (s *solver) extend(from, arc, head int32) {
	goal, ok := s.rest[len(s.p.Bounds)].known(head)
	if !ok || !s.open[arc] {
		return
	}
	at := &s.states[from]
	next := state{hops: at.hops + 1, node: head, arc: arc, parent: from}
	for i, b := range s.p.Bounds {
		next.sums[i] = at.sums[i] + b.Weights[arc]
		least, ok := s.rest[i].known(head)
		if !ok || !within(next.sums[i]+least.cost, b.Max) {
			return
		}
	}
	var key item
	if s.p.Widest { // how narrow it will be at best is all that matters of it
		next.cost = max(at.cost, -s.p.Width[arc], goal.cost)
		key = item{cost: next.cost, hops: next.hops}
	} else {
		next.cost = at.cost + s.p.Cost[arc]
		key = item{cost: next.cost + goal.cost, hops: next.hops + goal.hops}
	}
	if s.dominated(&next) || s.p.MaxCost > 0 && !within(key.cost, s.p.MaxCost) || s.guide.on && !s.promises(&next, &key) {
		return
	}
	key.node = int32(len(s.states))
	s.states = append(s.states, next)
	s.queue.push(key)
}

// dominated reports whether a way settled at the same node is as good in every
// respect. Without a guide those settled before cost no more, and with one bound
// the latest of them has the least sum.
func (s *solver) dominated(at *state) bool {
	n := len(s.p.Bounds)
	for i := s.settled[at.node]; i >= 0; i = s.states[i].older {
		o := &s.states[i]
		if o.sums[0] <= at.sums[0] && (n < 2 || o.sums[1] <= at.sums[1]) && (n < 3 || o.sums[2] <= at.sums[2]) && (!s.guide.on || o.cost <= at.cost) {
			return true
		}
		if n == 1 && !s.guide.on {
			return false
		}
	}
	return false
}

// way reads the path to a state.
func (s *solver) way(end int32) Path {
	arcs := make([]int, s.states[end].hops)
	for i := end; s.states[i].parent >= 0; i = s.states[i].parent {
		arcs[s.states[i].hops-1] = int(s.states[i].arc)
	}
	return Path{Arcs: arcs, Cost: sum(s.p.Cost, arcs)}
}

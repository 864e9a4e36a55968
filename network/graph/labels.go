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
// is no worse in any sum: it cost no more, or it would not have come first. That
// also drops every way that comes back to a node.
//
// The second result is the least cost that a path can have.
func (s *solver) settle() (int32, float64) {
	s.states, s.queue = s.states[:0], s.queue[:0]
	for i := range s.settled {
		s.settled[i] = -1
	}
	s.start()
	bound := s.low
	for popped := 1; len(s.queue) > 0; popped++ {
		top := s.queue.pop()
		at := &s.states[top.node]
		node := at.node
		if s.dominated(node, &at.sums) {
			continue
		}
		bound = top.cost
		if int(node) == s.p.To {
			return top.node, bound
		}
		if len(s.states) >= s.p.Limit.Labels || popped%512 == 0 && late(s.exactBy) {
			return limited, bound
		}
		at.older, s.settled[node] = s.settled[node], top.node
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
	s.queue.push(item{cost: goal.cost, hops: goal.hops})
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
	if s.dominated(head, &next.sums) {
		return
	}
	var total float64
	if s.p.Widest { // how narrow it will be at best is all that matters of it
		total = max(at.cost, -s.p.Width[arc], goal.cost)
		next.cost = total
	} else {
		next.cost = at.cost + s.p.Cost[arc]
		total = next.cost + goal.cost
	}
	if s.p.MaxCost > 0 && !within(total, s.p.MaxCost) {
		return
	}
	s.states = append(s.states, next)
	s.queue.push(item{cost: total, hops: next.hops + goal.hops, node: int32(len(s.states) - 1)})
}

// dominated reports whether a way settled at the node, which costs no more, has no
// greater sum in any bound. With one bound the latest has the least of all.
func (s *solver) dominated(node int32, sums *[MaxBounds]float64) bool {
	n := len(s.p.Bounds)
	for i := s.settled[node]; i >= 0; i = s.states[i].older {
		o := &s.states[i].sums
		if o[0] <= sums[0] && (n < 2 || o[1] <= sums[1]) && (n < 3 || o[2] <= sums[2]) {
			return true
		}
		if n == 1 {
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

package discovery

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// schedule says which port is to be looked at next. Each switch has a queue of its own,
// and those that have something due take turns, a port each: a switch with ports without
// number, or whose ports come and go, waits for itself.
type schedule struct {
	soon  queue[*member] // switches that have nothing due yet
	turns []*member      // those that have
}

// member is a switch that has ports.
type member struct {
	dpid    openflow.DatapathID
	ports   map[uint32]*port
	agenda  queue[*port]
	waiting bool // for its turn
	entry
}

// entry is when something is due, and its place in a queue.
type entry struct {
	due   time.Time
	place int
}

func (e *entry) self() *entry { return e }

func (p *port) order(o *port) int { return cmp.Compare(p.at.Port, o.at.Port) }

func (m *member) order(o *member) int { return cmp.Compare(m.dpid, o.dpid) }

// queue is a heap of entries, the earliest first.
type queue[T entrant[T]] []T

type entrant[T any] interface {
	self() *entry
	order(T) int
}

func (q queue[T]) Len() int { return len(q) }

func (q queue[T]) Less(i, j int) bool {
	if c := q[i].self().due.Compare(q[j].self().due); c != 0 {
		return c < 0
	}
	return q[i].order(q[j]) < 0
}

func (q queue[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].self().place, q[j].self().place = i, j
}

// Push is for package heap.
func (q *queue[T]) Push(x any) {
	e := x.(T)
	e.self().place = len(*q)
	*q = append(*q, e)
}

// Pop is for package heap.
func (q *queue[T]) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	clear((*q)[last:])
	*q = (*q)[:last]
	return e
}

// add takes in a port.
func (s *schedule) add(p *port, due time.Time) {
	m := p.of
	p.due = due
	heap.Push(&m.agenda, p)
	if len(m.agenda) == 1 && !m.waiting {
		m.due = due
		heap.Push(&s.soon, m)
		return
	}
	s.changed(m)
}

// move changes when a port is due.
func (s *schedule) move(p *port, due time.Time) {
	p.due = due
	heap.Fix(&p.of.agenda, p.place)
	s.changed(p.of)
}

// remove takes out a port.
func (s *schedule) remove(p *port) {
	m := p.of
	heap.Remove(&m.agenda, p.place)
	switch {
	case len(m.agenda) > 0:
		s.changed(m)
	case !m.waiting:
		heap.Remove(&s.soon, m.place)
	}
}

// changed has a switch's place follow from what is due first there.
func (s *schedule) changed(m *member) {
	if !m.waiting {
		m.due = m.agenda[0].due
		heap.Fix(&s.soon, m.place)
	}
}

// begin has switches with something due wait for their turn.
func (s *schedule) begin(now time.Time) {
	for len(s.soon) > 0 && !s.soon[0].due.After(now) {
		m := heap.Pop(&s.soon).(*member)
		m.waiting = true
		s.turns = append(s.turns, m)
	}
}

// turn is the port that is due first at the switch whose turn it is; nil if none is.
// The turn is over with done.
func (s *schedule) turn(now time.Time) *port {
	for len(s.turns) > 0 {
		m := s.turns[0]
		if len(m.agenda) > 0 && !m.agenda[0].due.After(now) {
			return m.agenda[0]
		}
		s.turns = s.turns[1:]
		s.rest(m)
	}
	return nil
}

// done ends a turn: the switch is the last to have another.
func (s *schedule) done() { s.turns = append(s.turns[1:], s.turns[0]) }

// rest takes a switch back that has nothing due any more.
func (s *schedule) rest(m *member) {
	m.waiting = false
	if len(m.agenda) > 0 {
		m.due = m.agenda[0].due
		heap.Push(&s.soon, m)
	}
}

// next is when something is due again, if anything is.
func (s *schedule) next(now time.Time) (time.Time, bool) {
	switch {
	case len(s.turns) > 0:
		return now, true
	case len(s.soon) > 0:
		return s.soon[0].due, true
	}
	return time.Time{}, false
}

package discovery

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// schedule decides which port is checked next. Each switch has its own queue, and the switches
// with something due take turns, one port each, so that a switch with very many ports, or ports
// that come and go, delays only itself.
type schedule struct {
	idle  queue[*switchPorts] // switches with nothing due yet
	turns []*switchPorts      // switches with something due
}

// switchPorts is a switch and its ports that are up.
type switchPorts struct {
	dpid    openflow.DatapathID
	ports   map[uint32]*port
	queue   queue[*port]
	inTurns bool // whether it is in schedule.turns
	queueItem
}

// queueItem is the part of a queue's item that the queue needs: the time at which the item is due,
// and its index in the queue.
type queueItem struct {
	due   time.Time
	place int
}

func (e *queueItem) self() *queueItem { return e }

func (p *port) order(o *port) int { return cmp.Compare(p.at.Port, o.at.Port) }

func (m *switchPorts) order(o *switchPorts) int { return cmp.Compare(m.dpid, o.dpid) }

// queue is a heap of items, the earliest first.
type queue[T queueable[T]] []T

type queueable[T any] interface {
	self() *queueItem
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

// Push implements heap.Interface.
func (q *queue[T]) Push(x any) {
	e := x.(T)
	e.self().place = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface.
func (q *queue[T]) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	clear((*q)[last:])
	*q = (*q)[:last]
	return e
}

// add adds a port.
func (s *schedule) add(p *port, due time.Time) {
	m := p.sw
	p.due = due
	heap.Push(&m.queue, p)
	if len(m.queue) == 1 && !m.inTurns {
		m.due = due
		heap.Push(&s.idle, m)
		return
	}
	s.reschedule(m)
}

// move changes the time at which a port is due.
func (s *schedule) move(p *port, due time.Time) {
	p.due = due
	heap.Fix(&p.sw.queue, p.place)
	s.reschedule(p.sw)
}

// remove removes a port.
func (s *schedule) remove(p *port) {
	m := p.sw
	heap.Remove(&m.queue, p.place)
	switch {
	case len(m.queue) > 0:
		s.reschedule(m)
	case !m.inTurns:
		heap.Remove(&s.idle, m.place)
	}
}

// reschedule updates the time at which an idle switch is due, after a change of the switch's queue.
func (s *schedule) reschedule(m *switchPorts) {
	if !m.inTurns {
		m.due = m.queue[0].due
		heap.Fix(&s.idle, m.place)
	}
}

// startTurns moves the switches with something due to the turns.
func (s *schedule) startTurns(now time.Time) {
	for len(s.idle) > 0 && !s.idle[0].due.After(now) {
		m := heap.Pop(&s.idle).(*switchPorts)
		m.inTurns = true
		s.turns = append(s.turns, m)
	}
}

// turn returns the port that is due first at the switch whose turn it is, or nil. The caller
// ends the turn with endTurn.
func (s *schedule) turn(now time.Time) *port {
	for len(s.turns) > 0 {
		m := s.turns[0]
		if len(m.queue) > 0 && !m.queue[0].due.After(now) {
			return m.queue[0]
		}
		s.turns = s.turns[1:]
		s.makeIdle(m)
	}
	return nil
}

// endTurn ends the turn: the switch goes to the end of the turns.
func (s *schedule) endTurn() { s.turns = append(s.turns[1:], s.turns[0]) }

// makeIdle moves a switch with nothing due back to the idle switches.
func (s *schedule) makeIdle(m *switchPorts) {
	m.inTurns = false
	if len(m.queue) > 0 {
		m.due = m.queue[0].due
		heap.Push(&s.idle, m)
	}
}

// next returns the time at which something is due, if there is anything.
func (s *schedule) next(now time.Time) (time.Time, bool) {
	switch {
	case len(s.turns) > 0:
		return now, true
	case len(s.idle) > 0:
		return s.idle[0].due, true
	}
	return time.Time{}, false
}

package network

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// seats are the places of connections that have not yet said which switch they are of.
// Anybody can open such connections, so they are bounded, in all and from one address, and
// count apart from those of switches. Where all places are taken, the oldest connection
// gives way, once it has had the time that a switch needs.
type seats struct {
	limit, each int

	mu    sync.Mutex
	order *list.List // of *seat, the oldest first
	count map[netip.Addr]int
}

// seat is the place of one connection.
type seat struct {
	of   *seats
	conn net.Conn
	addr netip.Addr
	at   time.Time
	on   *list.Element
}

const (
	// strangersInAll and strangersEach bound the connections that have said nothing yet:
	// from everywhere, and from one address, where many bridges of one machine may be.
	strangersInAll = 1024
	strangersEach  = 256
	// seatPatience is how long a connection keeps its seat from others. Switches say who
	// they are within milliseconds.
	seatPatience = time.Second
)

func newSeats(limit, each int) *seats {
	return &seats{limit: limit, each: each, order: list.New(), count: map[netip.Addr]int{}}
}

// take gives a connection a seat; nil if there is none.
func (s *seats) take(conn net.Conn, now time.Time) *seat {
	t := &seat{of: s, conn: conn, addr: hostOf(conn.RemoteAddr()), at: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[t.addr] >= s.each && !s.oust(now, func(o *seat) bool { return o.addr == t.addr }) {
		return nil
	}
	if s.order.Len() >= s.limit && !s.oust(now, func(*seat) bool { return true }) {
		return nil
	}
	t.on = s.order.PushBack(t)
	s.count[t.addr]++
	return t
}

// oust ends the oldest of some connections, if it has had its time; the mutex is held.
func (s *seats) oust(now time.Time, of func(*seat) bool) bool {
	for e := s.order.Front(); e != nil; e = e.Next() {
		o := e.Value.(*seat)
		if now.Sub(o.at) < seatPatience {
			return false
		}
		if of(o) {
			s.remove(o)
			_ = o.conn.Close()
			return true
		}
	}
	return false
}

// remove takes back a seat; the mutex is held.
func (s *seats) remove(t *seat) {
	if t.on == nil {
		return
	}
	s.order.Remove(t.on)
	t.on = nil
	if s.count[t.addr]--; s.count[t.addr] == 0 {
		delete(s.count, t.addr)
	}
}

// leave gives the seat back: the connection has ended, or is a switch's.
func (t *seat) leave() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.remove(t)
}

package network

import (
	"container/list"
	"crypto/sha256"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"
)

// seats are the places of connections that have not yet said which switch they are of.
// Anybody can open such connections, so they are bounded, in all and from one source, and
// count apart from those of switches. Where all places are taken, the oldest connection
// gives way, once it has had the time that a switch needs. A source that has more than
// an equal part of the places then takes them from itself only.
type seats struct {
	limit, each int

	mu    sync.Mutex
	order *list.List // of *seat, the oldest first
	count map[source]int
}

// source is whom connections count for: an address, or the holder of a certificate.
type source struct {
	addr        netip.Addr
	certificate [sha256.Size]byte
}

// seat is the place of one connection.
type seat struct {
	conn net.Conn

	// The mutex of the seats guards these.
	of     *seats
	source source
	at     time.Time
	on     *list.Element
}

const (
	// seatsInAll and seatsEach bound the connections that have said nothing yet: in all, and
	// of one source, where many bridges of one machine may be.
	seatsInAll = 2048
	seatsEach  = 256
	// seatPatience is how long a connection keeps its seat from others. Switches have shown
	// their certificate, and said who they are, within a few round trips.
	seatPatience = 250 * time.Millisecond
)

func newSeats(limit, each int) *seats {
	return &seats{limit: limit, each: each, order: list.New(), count: map[source]int{}}
}

// take gives a connection a seat; nil if there is none.
func (s *seats) take(conn net.Conn, of source, now time.Time) *seat {
	t := &seat{conn: conn}
	if !s.place(t, of, now) {
		return nil
	}
	return t
}

// place seats a connection that has no seat, and reports whether there was one.
func (s *seats) place(t *seat, of source, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	has, all := s.count[of], s.order.Len()
	switch {
	case has >= s.each || all >= s.limit && has > s.limit/len(s.count):
		if !s.oust(now, func(o *seat) bool { return o.source == of }) {
			return false
		}
	case all >= s.limit:
		if !s.oust(now, func(*seat) bool { return true }) {
			return false
		}
	}
	t.of, t.source, t.at = s, of, now
	t.on = s.order.PushBack(t)
	s.count[of]++
	return true
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
	if s.count[t.source]--; s.count[t.source] == 0 {
		delete(s.count, t.source)
	}
}

// leave gives the seat back: the connection has ended, or is a switch's.
func (t *seat) leave() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.remove(t)
}

// move gives the connection a seat among others instead, and reports whether there was one.
// Only the goroutine that serves the connection moves it.
func (t *seat) move(to *seats, of source, now time.Time) bool {
	t.leave()
	return to.place(t, of, now)
}

// addressOf returns the source that a connection counts for before it has shown a certificate.
func addressOf(conn net.Conn) source { return source{addr: hostOf(conn.RemoteAddr())} }

// certificateOf returns the source that a connection counts for whose peer has shown a
// certificate of an authority that is trusted, and whether it has.
func certificateOf(conn *tls.Conn) (source, bool) {
	chains := conn.ConnectionState().VerifiedChains
	if len(chains) == 0 {
		return source{}, false
	}
	return source{certificate: sha256.Sum256(chains[0][0].Raw)}, true
}

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

// pendingLimiter are the places of connections that have not yet said which switch they are of.
// Anybody can open such connections, so they are bounded, in all and from one source, and
// count apart from those of switches. Where all places are taken, the oldest connection
// gives way, once it has had the time that a switch needs. A source that has more than
// an equal part of the places then takes them from itself only.
type pendingLimiter struct {
	limit, perSource int

	mu    sync.Mutex
	order *list.List // of *seat, the oldest first
	count map[source]int
}

// source is whom connections count for: an address, or the holder of a certificate.
type source struct {
	addr        netip.Addr
	certificate [sha256.Size]byte
}

// pendingConn is the place of one connection.
type pendingConn struct {
	conn net.Conn

	// The mutex of the seats guards these.
	limiter *pendingLimiter
	source  source
	since   time.Time
	element *list.Element
}

const (
	// maxPending and seatsEach bound the connections that have said nothing yet: in all, and
	// of one source, where many bridges of one machine may be.
	maxPending          = 2048
	maxPendingPerSource = 256
	// pendingGrace is how long a connection keeps its seat from others. Switches have shown
	// their certificate, and said who they are, within a few round trips.
	pendingGrace = 250 * time.Millisecond
)

func newPendingLimiter(limit, perSource int) *pendingLimiter {
	return &pendingLimiter{limit: limit, perSource: perSource, order: list.New(), count: map[source]int{}}
}

// add gives a connection a seat; nil if there is none.
func (s *pendingLimiter) add(conn net.Conn, of source, now time.Time) *pendingConn {
	p := &pendingConn{conn: conn}
	if !s.tryAdd(p, of, now) {
		return nil
	}
	return p
}

// tryAdd seats a connection that has no seat, and reports whether there was one.
func (s *pendingLimiter) tryAdd(p *pendingConn, of source, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, all := s.count[of], s.order.Len()
	switch {
	case own >= s.perSource || all >= s.limit && own > s.limit/len(s.count):
		if !s.evictOldest(now, func(o *pendingConn) bool { return o.source == of }) {
			return false
		}
	case all >= s.limit:
		if !s.evictOldest(now, func(*pendingConn) bool { return true }) {
			return false
		}
	}
	p.limiter, p.source, p.since = s, of, now
	p.element = s.order.PushBack(p)
	s.count[of]++
	return true
}

// evictOldest ends the oldest of some connections, if it has had its time; the mutex is held.
func (s *pendingLimiter) evictOldest(now time.Time, match func(*pendingConn) bool) bool {
	for e := s.order.Front(); e != nil; e = e.Next() {
		o := e.Value.(*pendingConn)
		if now.Sub(o.since) < pendingGrace {
			return false
		}
		if match(o) {
			s.remove(o)
			_ = o.conn.Close()
			return true
		}
	}
	return false
}

// remove takes back a seat; the mutex is held.
func (s *pendingLimiter) remove(p *pendingConn) {
	if p.element == nil {
		return
	}
	s.order.Remove(p.element)
	p.element = nil
	if s.count[p.source]--; s.count[p.source] == 0 {
		delete(s.count, p.source)
	}
}

// release gives the seat back: the connection has ended, or is a switch's.
func (p *pendingConn) release() {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	p.limiter.remove(p)
}

// moveTo gives the connection a seat among others instead, and reports whether there was one.
// Only the goroutine that serves the connection moves it.
func (p *pendingConn) moveTo(to *pendingLimiter, of source, now time.Time) bool {
	p.release()
	return to.tryAdd(p, of, now)
}

// sourceByAddress returns the source that a connection counts for before it has shown a certificate.
func sourceByAddress(conn net.Conn) source { return source{addr: hostOf(conn.RemoteAddr())} }

// sourceByCertificate returns the source that a connection counts for whose peer has shown a
// certificate of an authority that is trusted, and whether it has.
func sourceByCertificate(conn *tls.Conn) (source, bool) {
	chains := conn.ConnectionState().VerifiedChains
	if len(chains) == 0 {
		return source{}, false
	}
	return source{certificate: sha256.Sum256(chains[0][0].Raw)}, true
}

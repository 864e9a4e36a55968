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

// pendingLimiter bounds the number of connections that have not yet identified their switch, in all
// and from one source. Anybody can open such connections, so they do not count as sessions of
// switches. When the limit is reached, the oldest connection is closed, once it has had the time that a
// switch needs. A source that has more than an equal share of the connections then displaces only
// its own.
type pendingLimiter struct {
	limit, perSource int

	mu    sync.Mutex
	order *list.List // of *pendingConn, oldest first
	count map[source]int
}

// source is the party that connections are counted for: an address, or the holder of a
// certificate.
type source struct {
	addr        netip.Addr
	certificate [sha256.Size]byte
}

// pendingConn is a connection in a pendingLimiter.
type pendingConn struct {
	conn net.Conn

	// The limiter's mutex guards these.
	limiter *pendingLimiter
	source  source
	since   time.Time
	element *list.Element
}

const (
	// maxPending and maxPendingPerSource are the limits on connections that have not identified
	// their switch: in all, and of one source, which may be a machine with many bridges.
	maxPending          = 2048
	maxPendingPerSource = 256
	// pendingGrace is how long a connection cannot be displaced. Switches show their certificate
	// and their identifier within a few round trips.
	pendingGrace = 250 * time.Millisecond
)

func newPendingLimiter(limit, perSource int) *pendingLimiter {
	return &pendingLimiter{limit: limit, perSource: perSource, order: list.New(), count: map[source]int{}}
}

// add adds a connection, and returns nil if the limiter is full.
func (s *pendingLimiter) add(conn net.Conn, of source, now time.Time) *pendingConn {
	p := &pendingConn{conn: conn}
	if !s.tryAdd(p, of, now) {
		return nil
	}
	return p
}

// tryAdd adds a connection that is in no limiter, and reports whether there was room for it.
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

// evictOldest closes the oldest connection that match accepts, and reports whether there is one
// whose grace has passed. The mutex is held.
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

// remove removes a connection. The mutex is held.
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

// release removes the connection from its limiter: it has ended, or has identified its switch.
func (p *pendingConn) release() {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	p.limiter.remove(p)
}

// moveTo moves the connection to another limiter, and reports whether there was room for it. Only
// the goroutine that serves the connection calls it.
func (p *pendingConn) moveTo(to *pendingLimiter, of source, now time.Time) bool {
	p.release()
	return to.tryAdd(p, of, now)
}

// sourceByAddress returns the source of a connection that has not shown a certificate.
func sourceByAddress(conn net.Conn) source { return source{addr: hostOf(conn.RemoteAddr())} }

// sourceByCertificate returns the source of a connection whose peer has shown a certificate of a
// trusted authority, and whether it has.
func sourceByCertificate(conn *tls.Conn) (source, bool) {
	chains := conn.ConnectionState().VerifiedChains
	if len(chains) == 0 {
		return source{}, false
	}
	return source{certificate: sha256.Sum256(chains[0][0].Raw)}, true
}

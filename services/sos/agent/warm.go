package agent

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// warmKey identifies the kind of connections that can replace each other.
type warmKey struct {
	peer      netip.AddrPort
	transport string
	tls       bool
}

func (d *dialer) warmKey(index int) warmKey {
	s := d.s
	ports := s.ports()
	return warmKey{
		peer:      netip.AddrPortFrom(s.req.Peer.Addr, ports[index%len(ports)]),
		transport: s.params.Transport,
		tls:       s.params.TLS,
	}
}

// warmPool holds idle connections to peers for later sessions. Most have carried sessions, and keep
// their congestion state. Others were opened before the first session with the peer. The dialling
// side owns the pool, and closes connections first, because the accepting side waits longer.
type warmPool struct {
	perPeer, total int
	maxIdle        time.Duration

	mu     sync.Mutex
	wanted map[warmKey]bool // the kinds that the controller wants before sessions, until the given time
	until  time.Time
	idle   map[warmKey][]warmConn
	byPeer map[netip.Addr]int // number of connections to each peer
	count  int
	closed bool
}

type warmConn struct {
	conn   net.Conn
	since  time.Time
	unused bool // whether no session has used the connection yet
}

func newWarmPool(cfg *Config) *warmPool {
	return &warmPool{
		perPeer: cfg.WarmPerPeer, total: cfg.WarmTotal, maxIdle: cfg.WarmIdle,
		idle: make(map[warmKey][]warmConn), byPeer: make(map[netip.Addr]int),
	}
}

// isClosed reports whether the peer has closed an idle connection, on which no data is expected.
func isClosed(c net.Conn) bool {
	over := false
	err := onSocket(c, func(fd int) error {
		var b [1]byte
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		over = n == 0 && err == nil || err != nil && err != unix.EAGAIN && err != unix.EINTR
		return nil
	})
	return over || errors.Is(err, net.ErrClosed)
}

// put adds c to the pool, or closes c if the pool has enough connections.
func (w *warmPool) put(k warmKey, c net.Conn) { w.add(k, warmConn{conn: c, since: time.Now()}) }

// putUnused does what put does, for a connection that no session has used, and reports whether the
// pool has taken it.
func (w *warmPool) putUnused(k warmKey, c net.Conn) bool {
	return w.add(k, warmConn{conn: c, since: time.Now(), unused: true})
}

func (w *warmPool) add(k warmKey, c warmConn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.byPeer[k.peer.Addr()] >= w.perPeer || w.count >= w.total {
		_ = c.conn.Close()
		return false
	}
	w.set(k, append(w.idle[k], c))
	return true
}

// want replaces the kinds of which the controller wants connections before sessions need them.
// Unused connections of other kinds are closed, and those of these kinds after until.
func (w *warmPool) want(kinds map[warmKey]bool, until time.Time) {
	w.mu.Lock()
	w.wanted, w.until = kinds, until
	w.mu.Unlock()
	w.expire(time.Now())
}

// lacking returns those of the wanted connections that the pool lacks. A connection that will be
// closed soon, because half of its time is over, is replaced already. If renew is set, connections
// that no session has used are replaced, too.
func (w *warmPool) lacking(wanted []warmKey, renew bool, now time.Time) (missing []warmKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := map[warmKey]int{}
	for _, k := range wanted {
		if _, counted := have[k]; !counted {
			have[k] = w.countFresh(k, renew, now)
		}
		if have[k]--; have[k] < 0 {
			missing = append(missing, k)
		}
	}
	return missing
}

// countFresh returns the number of connections of a kind that need not be replaced. It removes those
// that the peer has closed. mu is held.
func (w *warmPool) countFresh(k warmKey, renew bool, now time.Time) (n int) {
	list := slices.Clone(w.idle[k])
	list = slices.DeleteFunc(list, func(c warmConn) bool {
		if isClosed(c.conn) {
			resetNow(c.conn)
			return true
		}
		return false
	})
	for i := range list {
		c := &list[i]
		if c.unused && renew {
			c.since = now.Add(-lastWarmFactor * w.maxIdle) // closed when the new connection is open
		}
		if now.Sub(c.since) < lastWarmFactor*w.maxIdle/2 {
			n++
		}
	}
	w.set(k, list)
	return n
}

// take removes and returns the connection that was used last, or nil if there is none.
func (w *warmPool) take(k warmKey) net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.idle[k]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1].conn
	w.set(k, list[:len(list)-1])
	return c
}

func (w *warmPool) has(k warmKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.idle[k]) > 0
}

// size returns the number of idle connections.
func (w *warmPool) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

func (w *warmPool) set(k warmKey, list []warmConn) {
	more, peer := len(list)-len(w.idle[k]), k.peer.Addr()
	w.count += more
	if w.byPeer[peer] += more; w.byPeer[peer] == 0 {
		delete(w.byPeer, peer)
	}
	if len(list) == 0 {
		delete(w.idle, k)
		return
	}
	w.idle[k] = list
}

// expire closes the connections that have been idle for more than maxIdle.
// Of each kind, the lastWarm that were used last are kept for lastWarmFactor times that long.
// Connections that no session has used are closed as soon as the controller no longer wants them.
func (w *warmPool) expire(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.After(w.until) {
		w.wanted = nil
	}
	for k, list := range w.idle {
		var kept []warmConn
		for i, c := range list {
			most := w.maxIdle
			if len(list)-i <= lastWarm {
				most *= lastWarmFactor
			}
			if now.Sub(c.since) > most || c.unused && !w.wanted[k] {
				_ = c.conn.Close()
			} else {
				kept = append(kept, c)
			}
		}
		w.set(k, kept)
	}
}

// A session uses two connections at least. If two have stayed idle, it starts without the two round
// trips in which a connection is opened and the peer proves its key.
const lastWarm, lastWarmFactor = 2, 10

func (w *warmPool) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range w.idle {
		for _, c := range list {
			_ = c.conn.Close()
		}
	}
	clear(w.idle)
	clear(w.byPeer)
	w.count, w.closed = 0, true
}

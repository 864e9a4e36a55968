package agent

import (
	"errors"
	"net"
	"net/netip"
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

// warmPool holds idle connections to peers, which keep their congestion state, for later sessions.
// The dialling side owns the pool, and closes connections first, because the accepting side waits
// longer.
type warmPool struct {
	perPeer, total int
	maxIdle        time.Duration

	mu     sync.Mutex
	idle   map[warmKey][]warmConn
	byPeer map[netip.Addr]int // number of connections to each peer
	count  int
	closed bool
}

type warmConn struct {
	conn  net.Conn
	since time.Time
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
func (w *warmPool) put(k warmKey, c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.byPeer[k.peer.Addr()] >= w.perPeer || w.count >= w.total {
		_ = c.Close()
		return
	}
	w.set(k, append(w.idle[k], warmConn{conn: c, since: time.Now()}))
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
func (w *warmPool) expire(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, list := range w.idle {
		n := 0
		for ; n < len(list); n++ {
			most := w.maxIdle
			if len(list)-n <= lastWarm {
				most *= lastWarmFactor
			}
			if now.Sub(list[n].since) <= most {
				break
			}
			_ = list[n].conn.Close()
		}
		w.set(k, list[n:])
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

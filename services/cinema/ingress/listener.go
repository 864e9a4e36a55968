package ingress

import (
	"net"
	"net/netip"
	"sync"

	"github.com/sluice-net/sluice/internal/clientaddr"
)

// Bounds of the public listener's connections, in total and from one source. A source is an address or,
// for IPv6, a prefix (clientaddr.Source).
const (
	maxConns       = 512
	maxSourceConns = 32
)

// connLimiter counts connections by source and in total.
type connLimiter struct {
	most, mostPerSource int

	mu       sync.Mutex
	all      int
	bySource map[netip.Prefix]int
}

// acquire counts a connection, and reports whether it is within the bounds. The bound of a
// source does not apply to proxies.
func (c *connLimiter) acquire(source netip.Prefix, proxy bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || !proxy && c.bySource[source] >= c.mostPerSource {
		return false
	}
	if c.bySource == nil {
		c.bySource = map[netip.Prefix]int{}
	}
	c.all++
	c.bySource[source]++
	return true
}

// release removes a connection from the count.
func (c *connLimiter) release(source netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.bySource[source]--; c.bySource[source] == 0 {
		delete(c.bySource, source)
	}
}

// limitedListener closes connections that exceed the bounds of its limiter.
type limitedListener struct {
	net.Listener
	limiter *connLimiter
	proxies clientaddr.Proxies
}

// Accept returns the next connection within the bounds.
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
		source := clientaddr.Source(from)
		if l.limiter.acquire(source, l.proxies.Trust(from)) {
			return &limitedConn{conn, sync.OnceFunc(func() { l.limiter.release(source) })}, nil
		}
		_ = conn.Close()
	}
}

// limitedConn is a connection that is counted until it is closed.
type limitedConn struct {
	net.Conn
	release func()
}

// Close closes the connection.
func (p *limitedConn) Close() error {
	p.release()
	return p.Conn.Close()
}

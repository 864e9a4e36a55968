package ingress

import (
	"net"
	"net/netip"
	"sync"

	"github.com/sluice-net/sluice/internal/clientaddr"
)

// How many connections the public listener has at once, and of one source.
const (
	maxConns       = 512
	maxSourceConns = 32
)

// crowd counts what there is at once of each source, and in all.
type crowd struct {
	most, mostOfOne int

	mu   sync.Mutex
	all  int
	from map[netip.Prefix]int
}

// enter takes a place, if there is one. A proxy may have all.
func (c *crowd) enter(source netip.Prefix, proxy bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || !proxy && c.from[source] >= c.mostOfOne {
		return false
	}
	if c.from == nil {
		c.from = map[netip.Prefix]int{}
	}
	c.all++
	c.from[source]++
	return true
}

// leave gives the place back.
func (c *crowd) leave(source netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.from[source]--; c.from[source] == 0 {
		delete(c.from, source)
	}
}

// guardedListener closes connections for which its crowd has no place.
type guardedListener struct {
	net.Listener
	crowd   *crowd
	proxies clientaddr.Proxies
}

// Accept returns a connection that has a place.
func (l guardedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
		source := clientaddr.Source(from)
		if l.crowd.enter(source, l.proxies.Trust(from)) {
			return &placed{conn, sync.OnceFunc(func() { l.crowd.leave(source) })}, nil
		}
		_ = conn.Close()
	}
}

// placed is a connection that has a place until it is closed.
type placed struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (p *placed) Close() error {
	p.leave()
	return p.Conn.Close()
}

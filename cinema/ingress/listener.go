package ingress

import (
	"net"
	"net/netip"
	"sync"
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

// enter takes a place, if there is one.
func (c *crowd) enter(source netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.from[source] >= c.mostOfOne {
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

// sourceOf is what counts as one source: an address, or what one site has of IPv6.
func sourceOf(a netip.AddrPort) netip.Prefix {
	ip := a.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(ip, bits).Masked()
}

// guardedListener closes connections for which its crowd has no place.
type guardedListener struct {
	net.Listener
	crowd *crowd
}

// Accept returns a connection that has a place.
func (l guardedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := sourceOf(conn.RemoteAddr().(*net.TCPAddr).AddrPort())
		if l.crowd.enter(source) {
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

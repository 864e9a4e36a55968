package agent

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// pacers holds an agent's pacers, by path. They keep what they know while nobody sends.
type pacers struct {
	a *Agent

	mu  sync.Mutex
	all map[netip.AddrPort]*pacer
}

func newPacers(a *Agent) *pacers { return &pacers{a: a, all: map[netip.AddrPort]*pacer{}} }

// of returns the pacer of a path, and creates it if necessary.
func (x *pacers) of(path netip.AddrPort) *pacer {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.all[path]
	if p == nil {
		if len(x.all) >= maxPeers {
			x.evict()
		}
		p = newPacer(x.a)
		x.all[path] = p
	}
	return p
}

// evict removes the path that has been idle longest; mu is held.
func (x *pacers) evict() {
	var oldest netip.AddrPort
	var at time.Time
	for path, p := range x.all {
		p.mu.Lock()
		idle, sent := !p.running, p.sent
		p.mu.Unlock()
		if idle && (!oldest.IsValid() || sent.Before(at)) {
			oldest, at = path, sent
		}
	}
	delete(x.all, oldest)
}

// pathOf returns the key of a connection's path: the peer's address, and the data port of
// the side that accepted the connection.
func (s *session) pathOf(nc net.Conn) netip.AddrPort {
	at := nc.RemoteAddr()
	if s.role == roleAcceptor {
		at = nc.LocalAddr()
	}
	port := uint16(0)
	if tcp, ok := at.(*net.TCPAddr); ok {
		port = uint16(tcp.Port)
	}
	return netip.AddrPortFrom(s.req.Peer.Addr, port)
}

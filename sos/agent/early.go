package agent

import (
	"context"
	"net"
	"net/netip"
)

// early is a connection to the peer that is made while the session is being
// prepared, to save a round trip at commit. It carries nothing until then.
type early struct {
	done chan struct{}
	conn net.Conn
}

// dialEarly begins to connect to the peer, unless a warm connection waits.
func (s *session) dialEarly() {
	if s.role != roleDialer || s.params.TLS || s.agent.warm.has(s.warmKey(0)) {
		return
	}
	e := &early{done: make(chan struct{})}
	s.mu.Lock()
	s.early = e
	s.mu.Unlock()
	run := s.spawn(func() {
		defer close(e.done)
		ctx, cancel := context.WithTimeout(s.ctx, s.agent.cfg.OpeningTimeout)
		defer cancel()
		to := netip.AddrPortFrom(s.req.Peer.Addr, s.ports()[0])
		nc, err := s.agent.transport(s).Dial(ctx, s.own, to, s.params.CongestionControl, s.marked().Peer)
		if err == nil {
			e.conn = nc
		}
	})
	if !run {
		close(e.done)
	}
}

// takeEarly returns the early connection, waiting until it stands; nil if there is none.
func (s *session) takeEarly() net.Conn {
	s.mu.Lock()
	e := s.early
	s.early = nil
	s.mu.Unlock()
	if e == nil {
		return nil
	}
	<-e.done // its dial has a deadline
	return e.conn
}

// dropEarly closes an early connection that nobody took.
func (s *session) dropEarly() {
	if nc := s.takeEarly(); nc != nil {
		_ = nc.Close()
	}
}

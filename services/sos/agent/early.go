package agent

import (
	"context"
	"net"
)

// early is a connection to the peer that is established while the session is being
// prepared, to save a round trip at commit. It carries nothing until then.
type early struct {
	done chan struct{}
	conn net.Conn
}

// dialEarly starts to connect to the peer, unless a warm connection is available.
func (d *dialer) dialEarly() {
	s := d.s
	if s.params.TLS || s.agent.warm.has(d.warmKey(0)) {
		return
	}
	e := &early{done: make(chan struct{})}
	d.mu.Lock()
	d.early = e
	d.mu.Unlock()
	run := s.spawn(func() {
		defer close(e.done)
		ctx, cancel := context.WithTimeout(s.ctx, s.agent.cfg.OpeningTimeout)
		defer cancel()
		nc, err := s.transport().Dial(ctx, s.own, d.warmKey(0).peer, s.params.CongestionControl, s.marks.current().Peer)
		if err == nil {
			e.conn = nc
		}
	})
	if !run {
		close(e.done)
	}
}

// takeEarly waits until the early connection is established and returns it; nil if there is
// none.
func (d *dialer) takeEarly() net.Conn {
	d.mu.Lock()
	e := d.early
	d.early = nil
	d.mu.Unlock()
	if e == nil {
		return nil
	}
	<-e.done // its dial has a deadline
	return e.conn
}

// dropEarly closes an early connection that nobody took.
func (d *dialer) dropEarly() {
	if nc := d.takeEarly(); nc != nil {
		_ = nc.Close()
	}
}

package agent

import (
	"net"
	"slices"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// This file handles how a session's connections to the peer start and end.

// transport returns the session's transport, which prepare has checked.
func (s *session) transport() Transport {
	t, _ := s.agent.transports.byName(s.params.Transport)
	return t
}

// stats returns the transport's figures for a connection to the peer.
func (s *session) stats(c net.Conn) (ConnStats, error) { return s.transport().Stats(c) }

// ports returns the peer's data ports that the session uses.
func (s *session) ports() []uint16 {
	ports := s.req.Peer.DataPorts
	if n := s.params.Paths; n > 0 && n < len(ports) {
		ports = ports[:n]
	}
	return ports
}

// serveConn runs a connection for the session. It returns nil once both sides have released the
// connection, or an error if it fails. opening is the opening that the peer still has to answer, or
// nil.
func (s *session) serveConn(nc net.Conn, index int, opening []byte) error {
	c, err := newConn(s, index, nc)
	if err == nil {
		c.opening = opening
		err = s.attach(c)
	}
	if err != nil {
		return err
	}
	// The connection keeps its DSCP: bytes of this session may still be on their way, and the next
	// session sets its own.
	err = c.serve()
	s.detach(c, err)
	return err
}

// attach makes c one of the session's connections, adds it to the pacer of its path, and sets its
// DSCP.
func (s *session) attach(c *conn) error {
	if err := s.join(c); err != nil {
		return err
	}
	c.pacer.add(c)
	err := s.marks.mark(c.net)
	if err != nil {
		s.detach(c, err)
	}
	return err
}

// join adds c to the session's connections, in place of an earlier one with the same index.
func (s *session) join(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errOver
	}
	if s.graceful && s.role == roleDialer {
		c.release.Store(true)
	}
	list := slices.Clone(*s.conns.Load())
	for _, old := range list {
		if old.index == c.index {
			go old.fail(errReplaced)
		}
	}
	list = append(list, c)
	s.conns.Store(&list)
	s.wg.Add(1)
	select {
	case <-s.opened:
	default:
		close(s.opened)
	}
	s.setRunning()
	return nil
}

// detach removes c from the session's connections after it was released (err is nil) or lost.
func (s *session) detach(c *conn, err error) {
	defer s.wg.Done()
	c.pacer.remove(c)
	again := c.retransmits()
	s.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(*s.conns.Load()), func(x *conn) bool { return x == c })
	s.conns.Store(&list)
	s.heard = max(s.heard, c.heard.Load())
	s.retrans += again
	if err != nil && !s.ended && !s.graceful {
		s.lost++
		s.agent.metrics.lost.Inc()
	}
	s.peerDone = s.peerDone || err == nil
	over, released := s.complete(), s.ended || s.graceful && s.peerDone
	s.mu.Unlock()
	switch {
	case over:
		s.finish(agentapi.ReasonClosed, "", 0)
	case len(list) == 0 && s.role == roleAcceptor && !released:
		s.agent.probePeer(s.req.Peer)
	}
}

// wantsConns reports whether the session still needs connections to the peer. If all of them were
// lost while the peer was being released, one more is needed to release it.
func (s *session) wantsConns() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ended && (!s.graceful || !s.peerDone)
}

// sendAcks makes all connections confirm the chunks that they have received.
func (s *session) sendAcks() {
	for _, c := range *s.conns.Load() {
		c.kick()
	}
}

// announceWindow sends the new credit limit to the peer, on the connection on which the peer was
// heard last.
func (s *session) announceWindow() {
	var best *conn
	for _, c := range *s.conns.Load() {
		if best == nil || c.heard.Load() > best.heard.Load() {
			best = c
		}
	}
	if best != nil {
		best.kick()
	}
}

// useGeneration accepts each generation of a connection index at most once, and reports whether it
// has accepted this one.
func (s *session) useGeneration(index int, g uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || index >= len(s.last) || g <= s.last[index] {
		return false
	}
	s.last[index] = g
	return true
}

// nextGeneration returns the next generation for an opening of this agent with the given index.
func (s *session) nextGeneration(index int) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[index]++
	return s.last[index]
}

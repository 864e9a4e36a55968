package agent

import (
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// ownReset returns the reason for a reset by this agent's end host, and otherReset that for a reset
// by the other end host.
func (s *session) ownReset() agentapi.Reason   { return resetOf(s.role == roleDialer) }
func (s *session) otherReset() agentapi.Reason { return resetOf(s.role == roleAcceptor) }

func resetOf(client bool) agentapi.Reason {
	if client {
		return agentapi.ReasonClientReset
	}
	return agentapi.ReasonServerReset
}

// endFlag returns the flag that tells how the end host ended its direction: FlagFIN or FlagRST. It
// is called after a read has returned err or, if err is nil, no more bytes. If the writing side has
// consumed the error of a reset, the reset looks like a FIN to the reader.
func (s *session) endFlag(err error) wire.Flags {
	s.mu.Lock()
	end := s.end
	s.mu.Unlock()
	if err == nil && !s.in.broken() && !end.dead() {
		return wire.FlagFIN
	}
	s.in.abandon()
	return wire.FlagRST
}

// endHostBroken is called when the end host accepts no more bytes. The bytes that the end host sent
// before are still read and carried, and its reset follows in order. If that is impossible, the
// session ends at once.
func (s *session) endHostBroken() {
	if s.out.ended() || s.out.blocked() {
		s.finish(s.ownReset(), "", wire.CauseEndHost)
		return
	}
	s.out.wake()
}

// passReset passes on the other end's reset once the end host has acknowledged the bytes before it.
// It waits at most ResetDrain for a slow end host.
func (s *session) passReset() {
	s.mu.Lock()
	end := s.end
	s.mu.Unlock()
	deadline := time.NewTimer(s.agent.cfg.ResetDrain)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for end.unacked() > 0 {
		select {
		case <-poll.C:
			continue
		case <-deadline.C:
		case <-s.over:
		}
		break
	}
	s.peerEnded.Store(true)
	s.finish(s.otherReset(), "", wire.CauseEndHost)
}

// peerReset ends the session because the peer has given it up.
func (s *session) peerReset(cause wire.Cause) {
	reason := agentapi.ReasonPeerReset
	if flag, _ := s.out.done(); flag == wire.FlagRST {
		reason = s.ownReset()
	} else if cause == wire.CauseEndHost {
		reason = s.otherReset()
	}
	s.peerEnded.Store(true)
	s.finish(reason, "", wire.CauseEndHost) // the peer has ended already, or sends the same cause
}

// fail ends the session because of a fault of this agent.
func (s *session) fail(err error) {
	s.finish(agentapi.ReasonFailed, err.Error(), wire.CauseAgent)
}

// finish ends the session; only the first call has an effect. Unless the session is complete, the
// end host gets an RST. A cause other than 0 is sent to the peer. finish does not wait until the
// connections to the peer have left the session.
func (s *session) finish(reason agentapi.Reason, detail string, cause wire.Cause) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	if s.graceful {
		reason, detail = agentapi.ReasonClosed, ""
	}
	s.reason, s.detail = reason, detail
	end, listener, reserved := s.end, s.listener, s.reserved
	graceful := s.graceful
	s.mu.Unlock()

	if graceful {
		s.agent.sizes.record(s.req.Server, s.in.bytes.Load()+s.out.bytes.Load())
	}
	s.out.stop() // first, so that the reader does not take the abort for a reset by the end host
	switch {
	case end != nil && graceful:
		end.close()
	case end != nil:
		end.abort()
	}
	if listener != nil {
		dropIncoming(listener)
	}
	if reserved != nil && end == nil {
		reserved.close()
	}
	s.cancel()
	close(s.over)
	s.in.abandon()
	s.endConns(cause)
	s.agent.forget(s)
}

// endConns calls end for all connections to the peer.
func (s *session) endConns(cause wire.Cause) {
	for _, c := range *s.conns.Load() {
		c.end(cause)
	}
}

// portLinger is how long the port for the client stays open after the session's end, but ignores
// packets. After that time, the switches no longer forward packets to it.
const portLinger = 3 * time.Second

// freePort returns the session's port to the free ports. A port that listened for the client is
// kept for portLinger first, unless the agent closes.
func (s *session) freePort() {
	s.mu.Lock()
	ln, port := s.listener, s.port
	s.mu.Unlock()
	if port == 0 {
		return
	}
	defer s.agent.ports.give(port)
	if ln == nil {
		return
	}
	rest := time.NewTimer(portLinger)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-s.agent.ctx.Done():
	}
	_ = ln.Close()
}

package agent

import (
	"time"

	"github.com/sluice-net/sluice/sos/agentapi"
	"github.com/sluice-net/sluice/sos/wire"
)

// ownReset and otherReset name the reset by this agent's and the other end host.
func (s *session) ownReset() agentapi.Reason   { return resetOf(s.role == roleDialer) }
func (s *session) otherReset() agentapi.Reason { return resetOf(s.role == roleAcceptor) }

func resetOf(client bool) agentapi.Reason {
	if client {
		return agentapi.ReasonClientReset
	}
	return agentapi.ReasonServerReset
}

// endFlag decides how the end host ended its direction, when reading it gave
// err or, with nil, no more bytes. A reset whose error the writing side has
// taken looks like a FIN to the reader.
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

// endBroken is called when the end host takes no more bytes. What it has sent
// before is still read and carried, then its reset follows in order; where
// that cannot be, the reset goes at once.
func (s *session) endBroken() {
	if s.out.ended() || s.out.blocked() {
		s.finish(s.ownReset(), "", wire.CauseEndHost)
		return
	}
	s.out.wake()
}

// endByReset passes the other end's reset on, after the bytes before it have
// arrived; a slow reader is not waited for.
func (s *session) endByReset() {
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
	s.finish(reason, "", wire.CauseEndHost) // the peer has been told, or tells the same
}

// fail ends the session for a fault of this agent.
func (s *session) fail(err error) {
	s.finish(agentapi.ReasonFailed, err.Error(), wire.CauseAgent)
}

// finish ends the session, once. Unless it is complete, the end host gets RST;
// a cause other than 0 is told to the peer. It does not wait: the connections to the peer
// take leave of the session by themselves.
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
		s.agent.sizes.note(s.req.Server, s.in.bytes.Load()+s.out.bytes.Load())
	}
	s.out.stop() // first, or the reader takes the abort for the end host's
	switch {
	case end != nil && graceful:
		end.close()
	case end != nil:
		end.abort()
	}
	if listener != nil {
		deafen(listener)
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

// endConns ends the connections to the peer as conn.end does.
func (s *session) endConns(cause wire.Cause) {
	for _, c := range *s.conns.Load() {
		c.end(cause)
	}
}

// deafFor is how long the client's port at the agent stays open, but deaf, after
// the session's end: until the switches lead nobody there any more.
const deafFor = 3 * time.Second

// freePort gives the session's port back: that for the client when it has been
// deaf for long enough, or the agent closes.
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
	rest := time.NewTimer(deafFor)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-s.agent.ctx.Done():
	}
	_ = ln.Close()
}

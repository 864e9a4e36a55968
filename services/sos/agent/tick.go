package agent

import (
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// tick does the session's periodic work. It never blocks.
func (s *session) tick(now int64) {
	for _, c := range *s.conns.Load() {
		c.tick(now)
	}
	s.congestion.update()
	s.mu.Lock()
	phase, since, graceful, end := s.phase, s.since, s.graceful, s.end
	peerDone, delivered := s.peerDone, s.delivered
	s.mu.Unlock()
	cfg := &s.agent.cfg
	heard := s.lastHeard()
	age := func(t int64) time.Duration { return time.Duration(now - t) }
	idle := orDefault(time.Duration(s.req.Idle), cfg.IdleTimeout)
	timeout := orDefault(time.Duration(s.req.PeerTimeout), cfg.PeerTimeout)
	switch {
	case heard != 0 && !peerDone && age(max(heard, since)) > timeout:
		s.finish(agentapi.ReasonPeerLost, "nothing heard from the peer for "+timeout.String(), wire.CauseAgent)
	case graceful:
		// The peer has not answered a release, or the end host accepts nothing.
		if s.role == roleDialer && delivered && age(since) > cfg.OpeningTimeout || age(since) > idle {
			s.finish(agentapi.ReasonClosed, "", 0)
		}
	case (phase == agentapi.PhasePrepared || phase == agentapi.PhaseCommitted) && age(since) > cfg.PrepareTimeout:
		s.finish(agentapi.ReasonExpired, "in phase "+string(phase)+" for "+cfg.PrepareTimeout.String(), wire.CauseAbort)
	case age(s.active.Load()) > idle && phase == agentapi.PhaseRunning:
		s.finish(agentapi.ReasonIdle, "no byte for "+idle.String(), wire.CauseAgent)
	case end != nil && end.dead() && (s.out.ended() || s.out.blocked()):
		s.finish(s.ownReset(), "", wire.CauseEndHost)
	}
}

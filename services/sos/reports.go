package sos

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// listTimeout bounds how long an agent may take to list its sessions.
const listTimeout = 5 * time.Second

// agentEvent handles an event of an agent: counters, and sessions that have ended.
func (s *endings) agentEvent(a *agent, e agentapi.Event, before bool) {
	now := time.Now()
	s.mu.Lock()
	for _, l := range e.Live {
		if ss := s.sessions.byID[l.ID]; ss != nil && ss.agent(l.Role) == a {
			ss.recordCounters(l.Role, l.Counters, now)
			if l.Role == agentapi.RoleClient && (l.Phase == agentapi.PhaseRunning || l.Phase == agentapi.PhaseClosing) {
				s.sessions.leaveHalfOpen(ss)
			}
		}
	}
	s.mu.Unlock()
	for _, r := range e.Ended {
		s.agentDone(r, before)
	}
}

// findMissed ends the sessions whose end an agent no longer remembers. An agent remembers a
// limited number of ends, and its events may have been out of reach for a while.
func (s *endings) findMissed(ctx context.Context, a *agent) {
	type half struct {
		id   agentapi.SessionID
		role agentapi.Role
	}
	unknown := map[half]agentapi.Counters{}
	s.mu.Lock()
	for id, ss := range s.sessions.byID {
		for _, r := range roles {
			if _, ok := ss.ended[r]; !ok && ss.state == StateLive && ss.agent(r) == a {
				unknown[half{id, r}] = ss.last[r]
			}
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := a.Client.Sessions(ctx)
	if err != nil {
		s.log.Warn("agent does not say which sessions it carries", "agent", a.Name, "error", err)
		return
	}
	for _, x := range list {
		delete(unknown, half{x.ID, x.Role})
	}
	for h, last := range unknown {
		s.mu.Lock()
		ss := s.sessions.byID[h.id]
		reported := ss == nil || ss.ended[h.role].Reason != ""
		s.mu.Unlock()
		if reported {
			continue
		}
		s.agentDone(agentapi.SessionRecord{
			Reason: agentapi.ReasonClosed, Detail: "how is not known",
			Session: agentapi.Session{ID: h.id, Role: h.role, Counters: last},
		}, false)
	}
}

// recordCounters stores an agent's counters. The lock is held.
func (ss *session) recordCounters(r agentapi.Role, c agentapi.Counters, at time.Time) {
	ss.last[r] = c
	if r != agentapi.RoleClient && ss.last[agentapi.RoleClient] != (agentapi.Counters{}) {
		return
	}
	ss.samples.add(Sample{At: at, BytesUp: c.BytesUp, BytesDown: c.BytesDown, Retransmits: ss.retransmits()})
}

// retransmits returns the number of segments that both agents have sent again.
func (ss *session) retransmits() uint64 {
	return ss.last[agentapi.RoleClient].Retransmits + ss.last[agentapi.RoleServer].Retransmits
}

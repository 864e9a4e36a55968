package plugin

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/sos/agentapi"
)

// listTimeout bounds how long an agent may take to say which sessions it carries.
const listTimeout = 5 * time.Second

// agentEvent takes in what an agent tells: counters, and sessions that have ended.
func (s *endings) agentEvent(a *agent, e agentapi.Event, before bool) {
	now := time.Now()
	s.mu.Lock()
	for _, l := range e.Live {
		if ss := s.sessions.byID[l.ID]; ss != nil && ss.agent(l.Role) == a {
			ss.progress(l.Role, l.Counters, now)
			if l.Role == agentapi.RoleClient && (l.Phase == agentapi.PhaseRunning || l.Phase == agentapi.PhaseClosing) {
				s.sessions.opened(ss)
			}
		}
	}
	s.mu.Unlock()
	for _, r := range e.Ended {
		s.agentDone(r, before)
	}
}

// findMissed ends the sessions whose end an agent no longer remembers: it keeps
// only so many, and its events may have been out of reach for a while.
func (s *endings) findMissed(ctx context.Context, a *agent) {
	type half struct {
		id   agentapi.SessionID
		role agentapi.Role
	}
	unknown := map[half]agentapi.Counters{}
	s.mu.Lock()
	for id, ss := range s.sessions.byID {
		for _, r := range bothRole {
			if _, over := ss.ended[r]; !over && ss.state == StateLive && ss.agent(r) == a {
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
		told := ss == nil || ss.ended[h.role].Reason != ""
		s.mu.Unlock()
		if told {
			continue
		}
		s.agentDone(agentapi.SessionRecord{
			Reason: agentapi.ReasonClosed, Detail: "how is not known",
			Session: agentapi.Session{ID: h.id, Role: h.role, Counters: last},
		}, false)
	}
}

// progress takes in an agent's counters. The lock is held.
func (ss *session) progress(r agentapi.Role, c agentapi.Counters, at time.Time) {
	ss.last[r] = c
	if r != agentapi.RoleClient && ss.last[agentapi.RoleClient] != (agentapi.Counters{}) {
		return
	}
	ss.samples.add(Sample{At: at, BytesUp: c.BytesUp, BytesDown: c.BytesDown, Retransmits: ss.retransmits()})
}

// retransmits adds up what both agents sent again.
func (ss *session) retransmits() uint64 {
	return ss.last[agentapi.RoleClient].Retransmits + ss.last[agentapi.RoleServer].Retransmits
}

package plugin

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// maxHalfOpen bounds the sessions whose clients have not come to their agents yet.
const maxHalfOpen = 384

// sessions are those that there are, with the bounds on those being set up, and what is
// remembered of connections without one. The service's lock guards all of it.
type sessions struct {
	*core
	byFlow map[flow]*session
	byID   map[agentapi.SessionID]*session
	// agentFlows are the sessions by what their agents send: from the agent's
	// session port, to the end host.
	agentFlows map[flow]*session
	// setups counts the sessions being set up, perClient does by client.
	setups    int
	perClient map[netip.Addr]int
	// halfOpen holds a token for each session whose client has not come to its agent yet.
	halfOpen chan struct{}
	direct   *recent[flow]    // connections that go directly
	passed   *recent[opening] // connections that were carried to their end
	directs  directs
}

func newSessions(c *core) *sessions {
	return &sessions{
		core: c, byFlow: map[flow]*session{}, byID: map[agentapi.SessionID]*session{}, agentFlows: map[flow]*session{},
		perClient: map[netip.Addr]int{}, halfOpen: make(chan struct{}, maxHalfOpen),
		direct: newRecent[flow](), passed: newRecent[opening](), directs: directs{},
	}
}

// admit makes a session of an offer, unless it is one already or there are too
// many. The lock is held.
func (s *sessions) admit(o offer, entry *Entry) (*session, network.Verdict) {
	now := time.Now()
	switch old := s.byFlow[o.flow]; {
	case old != nil:
		// The packet that is being held will do for both.
		return nil, network.Stop
	case s.passed.has(opening{o.flow, o.isn}, now):
		return nil, network.Stop // a late copy
	case s.direct.has(o.flow, now):
		return nil, network.Continue
	}
	client := o.flow.client.Addr()
	var reason Reason
	var cause string
	switch {
	case !s.running:
		reason, cause = ReasonStarting, "the service was not ready yet"
	case s.setups >= s.config.MaxSetups:
		reason, cause = ReasonSetups, fmt.Sprintf("%d connections were being set up, which is max_setups", s.setups)
	case s.perClient[client] >= s.config.MaxSetupsPerClient:
		reason, cause = ReasonClient, fmt.Sprintf("%d connections of %v were being set up, which is max_setups_per_client", s.perClient[client], client)
	}
	if reason != "" {
		s.refuse(reason, cause, now)
		s.direct.add(o.flow, now)
		return nil, network.Continue
	}
	ss := newSession(agentapi.NewSessionID(), sessionContext{
		Layout: Layout{Client: o.flow.client, Server: o.flow.server}, Entry: entry.ID, Tuning: entry.Tuning.over(s.config.Tuning), Started: now,
	})
	ss.isn = o.isn
	ss.enter(StateSetup)
	s.byFlow[o.flow], s.byID[ss.id] = ss, ss
	s.setups++
	s.perClient[client]++
	return ss, network.Stop
}

// refuse counts a connection that is not tried. The lock is held.
func (s *sessions) refuse(reason Reason, cause string, now time.Time) {
	s.metrics.refused.WithLabelValues(string(reason)).Inc()
	s.directs.add(reason, cause, now)
}

// admitted ends the time in which a session counts as being set up. The lock is held.
func (s *sessions) admitted(ss *session) {
	s.setups--
	client := ss.flow.client.Addr()
	if s.perClient[client]--; s.perClient[client] <= 0 {
		delete(s.perClient, client)
	}
}

// opened gives back a session's place among those whose clients have not come
// yet. The lock is held.
func (s *sessions) opened(ss *session) {
	if ss.halfOpen {
		ss.halfOpen = false
		<-s.halfOpen
	}
}

// remove takes off the list a session that has ended. The lock is held.
func (s *sessions) remove(ss *session) {
	if s.byFlow[ss.flow] == ss {
		delete(s.byFlow, ss.flow)
	}
	delete(s.byID, ss.id)
	s.forgetAgentFlows(ss)
	ss.release()
	s.opened(ss)
	ss.enter(StateEnded)
}

// noteAgentFlows has packets of the session's agents known as a session's. The
// lock is held.
func (s *sessions) noteAgentFlows(ss *session) {
	for _, r := range bothRole {
		if ss.Layout.side(r).AgentPort != 0 {
			s.agentFlows[ss.Layout.agentFlow(r)] = ss
		}
	}
}

// forgetAgentFlows undoes noteAgentFlows. The lock is held.
func (s *sessions) forgetAgentFlows(ss *session) {
	for _, r := range bothRole {
		if f := ss.Layout.agentFlow(r); s.agentFlows[f] == ss {
			delete(s.agentFlows, f)
		}
	}
}

// live lists the live sessions.
func (s *sessions) live() (out []*session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ss := range s.byFlow {
		if ss.state == StateLive {
			out = append(out, ss)
		}
	}
	return out
}

// of lists the live sessions of an agent with another; nil: with any.
func (s *sessions) of(a, with *agent) []*session {
	return slices.DeleteFunc(s.live(), func(ss *session) bool { return !ss.carriedBy(a, with) })
}

// peers are the agents with which one carries live sessions.
func (s *sessions) peers(a *agent) (out []*agent) {
	for _, ss := range s.of(a, nil) {
		o := ss.client
		if o == a {
			o = ss.server
		}
		if !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	return out
}

// count tells how many sessions are in which state.
func (s *sessions) count(is func(float64, ...string)) {
	states := map[State]int{StateSetup: 0, StateLive: 0, StateResetting: 0, StateEnding: 0}
	s.mu.Lock()
	for _, ss := range s.byFlow {
		states[ss.state]++
	}
	s.mu.Unlock()
	for state, n := range states {
		is(float64(n), string(state))
	}
}

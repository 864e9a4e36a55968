package sos

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// maxHalfOpen bounds the number of sessions whose clients have not reached their agents yet.
const maxHalfOpen = 384

// sessions holds all current sessions, enforces the limits on set-ups, and remembers recent
// connections without a session. The service's lock guards all of it.
type sessions struct {
	*core
	byFlow map[flow]*session
	byID   map[agentapi.SessionID]*session
	// agentFlows maps the flows that agents send to end hosts, from their session ports, to
	// sessions.
	agentFlows map[flow]*session
	// setups is the number of sessions being set up, and perClient the same number by client.
	setups    int
	perClient map[netip.Addr]int
	// halfOpen holds a token for each session whose client has not reached its agent yet.
	halfOpen  chan struct{}
	direct    *recent[flow]  // connections that go directly
	completed *recent[synID] // connections that were carried to their end
	directs   directs
}

func newSessions(c *core) *sessions {
	return &sessions{
		core: c, byFlow: map[flow]*session{}, byID: map[agentapi.SessionID]*session{}, agentFlows: map[flow]*session{},
		perClient: map[netip.Addr]int{}, halfOpen: make(chan struct{}, maxHalfOpen),
		direct: newRecent[flow](), completed: newRecent[synID](), directs: directs{},
	}
}

// admit creates a session for an offer. It returns nil and a verdict if the connection has a
// session already, if it went directly or ended a short time ago, or if it exceeds a limit. The
// lock is held.
func (s *sessions) admit(o offer, entry *Entry) (*session, network.Verdict) {
	now := time.Now()
	switch old := s.byFlow[o.flow]; {
	case old != nil:
		// The first packet is held already, and this one only repeats it.
		return nil, network.Stop
	case s.completed.has(synID{o.flow, o.isn}, now):
		return nil, network.Stop // a late copy of an ended connection's SYN
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

// refuse counts a connection for which no set-up is tried. The lock is held.
func (s *sessions) refuse(reason Reason, cause string, now time.Time) {
	s.metrics.refused.WithLabelValues(string(reason)).Inc()
	s.directs.add(reason, cause, now)
}

// endSetup stops counting a session as one being set up. The lock is held.
func (s *sessions) endSetup(ss *session) {
	s.setups--
	client := ss.flow.client.Addr()
	if s.perClient[client]--; s.perClient[client] <= 0 {
		delete(s.perClient, client)
	}
}

// leaveHalfOpen releases the token of halfOpen that a session holds, if it holds one. The lock is
// held.
func (s *sessions) leaveHalfOpen(ss *session) {
	if ss.halfOpen {
		ss.halfOpen = false
		<-s.halfOpen
	}
}

// remove removes a session that has ended from all lists. The lock is held.
func (s *sessions) remove(ss *session) {
	if s.byFlow[ss.flow] == ss {
		delete(s.byFlow, ss.flow)
	}
	delete(s.byID, ss.id)
	s.forgetAgentFlows(ss)
	ss.releaseAgents()
	s.leaveHalfOpen(ss)
	ss.enter(StateEnded)
}

// noteAgentFlows registers the flows that the session's agents send. The lock is held.
func (s *sessions) noteAgentFlows(ss *session) {
	for _, r := range roles {
		if ss.Layout.side(r).AgentPort != 0 {
			s.agentFlows[ss.Layout.agentFlow(r)] = ss
		}
	}
}

// forgetAgentFlows undoes noteAgentFlows. The lock is held.
func (s *sessions) forgetAgentFlows(ss *session) {
	for _, r := range roles {
		if f := ss.Layout.agentFlow(r); s.agentFlows[f] == ss {
			delete(s.agentFlows, f)
		}
	}
}

// live returns the live sessions.
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

// of returns the live sessions that the agent a carries together with the agent with, or with any
// agent if with is nil.
func (s *sessions) of(a, with *agent) []*session {
	return slices.DeleteFunc(s.live(), func(ss *session) bool { return !ss.carriedBy(a, with) })
}

// peers returns the agents with which a carries live sessions.
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

// count passes the number of sessions in each state to is.
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

const (
	// recentFor is how long a connection that went directly, or that has ended, is remembered.
	// Within that time, its first packet may be repeated or arrive late.
	recentFor = 30 * time.Second
	// maxRecent bounds the number of connections that are remembered.
	maxRecent = 65536
)

// recent is a set whose elements expire after recentFor. It is bounded: a new element
// replaces the oldest.
type recent[K comparable] struct {
	until map[K]time.Time
	order []K
	next  int
}

func newRecent[K comparable]() *recent[K] { return &recent[K]{until: make(map[K]time.Time)} }

func (r *recent[K]) add(k K, now time.Time) {
	if _, ok := r.until[k]; !ok {
		if len(r.order) < maxRecent {
			r.order = append(r.order, k)
		} else {
			delete(r.until, r.order[r.next])
			r.order[r.next] = k
			r.next = (r.next + 1) % maxRecent
		}
	}
	r.until[k] = now.Add(recentFor)
}

func (r *recent[K]) has(k K, now time.Time) bool { return now.Before(r.until[k]) }

// synID identifies the first packet of a connection. Another connection between the same
// ports has another initial sequence number (RFC 6528).
type synID struct {
	flow flow
	isn  uint32
}

package plugin

import (
	"maps"
	"time"

	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// registry is SOS's agents, agent one of them.
type (
	registry = agents.Registry[*agentapi.Client, agentapi.SessionRecord, agentapi.Live]
	agent    = agents.Agent[*agentapi.Client]
)

// newRegistry returns the agents, none so far.
func (s *Service) newRegistry() *registry {
	return agents.New(agents.Options[*agentapi.Client, agentapi.SessionRecord, agentapi.Live]{
		Service: Name, Network: s.net, Store: s.store, Log: s.log, Publish: s.publish,
		Certificate: s.opts.AgentTLS != nil, ControlSubnets: s.opts.ControlSubnets,
		Dial: func(r agents.AgentRecord) (*agentapi.Client, error) {
			return agentapi.NewClient(r.URL, s.opts.AgentTLS, s.opts.Dial)
		},
		Timing: func() (silent, patience time.Duration) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return time.Duration(s.config.SilentAfter), time.Duration(s.config.PeerTimeout)
		},
		Event: s.agentEvent, Missed: s.findMissed, Heard: s.tellLate, Peers: s.peers, Lost: s.loseSessions, Changed: s.agentsChanged,
	})
}

// agentsChanged has handler and keeper look at the agents again.
func (s *Service) agentsChanged() {
	s.mu.Lock()
	maps.DeleteFunc(s.untold, func(a *agent, _ []agentapi.SessionID) bool { return s.agents.Get(a.Name) != a })
	s.refreshView()
	s.mu.Unlock()
	s.wake()
}

// peers are the agents with which one carries live sessions.
func (s *Service) peers(a *agent) (out []*agent) {
	known := map[*agent]bool{}
	for _, ss := range s.sessionsOf(a, nil) {
		o := ss.client
		if o == a {
			o = ss.server
		}
		if !known[o] {
			known[o], out = true, append(out, o)
		}
	}
	return out
}

// sessionsOf lists the live sessions of an agent with another; nil: with any.
func (s *Service) sessionsOf(a, with *agent) (out []*session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ss := range s.sessions {
		x, y := ss.client, ss.server
		if ss.state == StateLive && (x == a && (with == nil || y == with) || y == a && (with == nil || x == with)) {
			out = append(out, ss)
		}
	}
	return out
}

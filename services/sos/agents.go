package sos

import (
	"maps"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// registry holds the agents of SOS; agent is one of them.
type (
	registry = agents.Registry[*agentapi.Client, agentapi.SessionRecord, agentapi.Live]
	agent    = agents.Agent[*agentapi.Client]
)

// newRegistry returns an empty registry of agents.
func (s *Service) newRegistry() *registry {
	return agents.New(agents.Options[*agentapi.Client, agentapi.SessionRecord, agentapi.Live]{
		Service: Name, Network: s.net, Store: s.store, Log: s.log, Publish: s.publish,
		Certificate: s.opts.AgentTLS != nil, ControlSubnets: s.opts.ControlSubnets,
		Dial: func(r agents.AgentRecord) (*agentapi.Client, error) {
			return agentapi.NewClient(r.URL, s.opts.AgentTLS, s.opts.Dial)
		},
		Timing: func() (silent, deadAfter time.Duration) {
			c := s.settings()
			return time.Duration(c.SilentAfter), time.Duration(c.PeerTimeout)
		},
		Event: s.endings.agentEvent, Missed: s.endings.findMissed, Heard: s.endings.sendPendingAborts, Lost: s.endings.endSessionsOf,
		Peers: s.sessions.peers, Changed: s.agentsChanged,
	})
}

// agentsChanged updates the packet-in handler's snapshot after a change of the agents, and
// requests a reconciliation.
func (s *Service) agentsChanged() {
	s.mu.Lock()
	maps.DeleteFunc(s.endings.pendingAborts, func(a *agent, _ []agentapi.SessionID) bool { return s.agents.Get(a.Name) != a })
	s.selection.refresh()
	s.mu.Unlock()
	s.wake()
}

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
			c := s.settings()
			return time.Duration(c.SilentAfter), time.Duration(c.PeerTimeout)
		},
		Event: s.endings.agentEvent, Missed: s.endings.findMissed, Heard: s.endings.tellLate, Lost: s.endings.lose,
		Peers: s.sessions.peers, Changed: s.agentsChanged,
	})
}

// agentsChanged has handler and keeper look at the agents again.
func (s *Service) agentsChanged() {
	s.mu.Lock()
	maps.DeleteFunc(s.endings.untold, func(a *agent, _ []agentapi.SessionID) bool { return s.agents.Get(a.Name) != a })
	s.selection.refresh()
	s.mu.Unlock()
	s.wake()
}

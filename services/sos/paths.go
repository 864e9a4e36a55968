package sos

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/control"
)

// pathsTimeout bounds how long an agent may take to list its paths.
const pathsTimeout = 5 * time.Second

// PathInfo is an agent's knowledge about one of its paths, as the API shows it.
type PathInfo struct {
	Agent     string           `json:"agent" doc:"Name of the agent that sends on the path"`
	PeerAgent string           `json:"peer_agent,omitempty" doc:"Name of the other agent, if it is known"`
	Peer      string           `json:"peer" doc:"Address of the other agent"`
	Port      uint16           `json:"port" doc:"Data port of the side that accepts connections"`
	Rate      uint64           `json:"bits_per_second" doc:"What the path carries, in bits of payload a second; 0: not known"`
	Source    string           `json:"source,omitempty" doc:"How the rate was learned: measured, declared by the controller, or from the agent's file"`
	Doubtful  bool             `json:"doubtful" doc:"It has not shown its rate for a while, or it was lowered beside other traffic: it is tried at half"`
	Seen      time.Time        `json:"seen,omitzero" doc:"When it last showed its rate"`
	RTT       control.Duration `json:"rtt" doc:"Round trip without a queue; 0s: not known"`
	Loss      float64          `json:"loss" doc:"Share of the bytes that were retransmitted lately"`
	Queue     control.Duration `json:"queue" doc:"How much longer the round trip was at the last update"`
	Pace      uint64           `json:"pace_bits_per_second" doc:"What all sessions together may send, in bits of payload a second; 0 while none sends"`
	Delivered uint64           `json:"delivered_bits_per_second" doc:"What is delivered now, in bits of payload a second"`
	Limit     uint64           `json:"limit_bits_per_second" doc:"What the controller lets the agent send beside other agents on the same links, in bits of payload a second; 0: no limit"`
	Sessions  int              `json:"sessions" doc:"Sessions that have more to send than they may"`
	Phase     string           `json:"phase" doc:"What the agent does: find, try, hold, grow or drain"`
}

// AllPaths is what the agents know about their paths, as the API shows it.
type AllPaths struct {
	Paths      []PathInfo `json:"paths" doc:"By the name of the agent, then by the address of the other one"`
	Unanswered []string   `json:"unanswered" doc:"Agents that are up but have not listed their paths, each with the cause"`
}

type byName struct {
	Name string `path:"name" doc:"Name of the agent"`
}

// getPaths asks an agent for its paths.
func (s *Service) getPaths(ctx context.Context, in *byName) (*kit.Body[[]PathInfo], error) {
	a := s.agents.Get(in.Name)
	if a == nil {
		return nil, kit.Problem(fmt.Errorf("agent %q: %w", in.Name, kit.ErrUnknown), "path.name", in.Name)
	}
	list, err := pathsOf(ctx, a, s.agentNames())
	if err != nil {
		return nil, api.Unavailable("%v", err)
	}
	return &kit.Body[[]PathInfo]{Body: list}, nil
}

// getAllPaths asks all agents that are up for their paths.
func (s *Service) getAllPaths(ctx context.Context, _ *kit.Nothing) (*kit.Body[AllPaths], error) {
	names := s.agentNames()
	var mu sync.Mutex
	all := AllPaths{Paths: []PathInfo{}, Unanswered: []string{}}
	eachUp(slices.Values(s.agents.List()), func(a *agent) {
		list, err := pathsOf(ctx, a, names)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			all.Unanswered = append(all.Unanswered, err.Error())
		}
		all.Paths = append(all.Paths, list...)
	})
	slices.SortStableFunc(all.Paths, func(a, b PathInfo) int { return strings.Compare(a.Agent, b.Agent) })
	slices.Sort(all.Unanswered)
	return &kit.Body[AllPaths]{Body: all}, nil
}

// pathsOf asks one agent for its paths. names holds the names of the agents by their data addresses.
func pathsOf(ctx context.Context, a *agent, names map[netip.Addr]string) ([]PathInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, pathsTimeout)
	defer cancel()
	list, err := a.Client.Paths(ctx)
	if err != nil {
		return nil, fmt.Errorf("agent %s does not list its paths: %w", a.Name, err)
	}
	out := make([]PathInfo, len(list))
	for i, p := range list {
		out[i] = PathInfo{
			Agent: a.Name, PeerAgent: names[p.Peer], Peer: p.Peer.String(), Port: p.Port, Rate: p.Rate, Source: string(p.Source), Doubtful: p.Doubtful, Seen: p.Seen,
			RTT: p.RTT, Loss: p.Loss, Queue: p.Queue, Pace: p.Pace, Delivered: p.Delivered, Limit: p.Limit, Sessions: p.Sessions, Phase: p.Phase,
		}
	}
	return out, nil
}

// agentNames returns the names of the agents by their data addresses.
func (s *Service) agentNames() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for _, a := range s.agents.List() {
		for _, addr := range a.State().Addrs {
			names[addr] = a.Name
		}
	}
	return names
}

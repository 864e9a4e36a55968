package sos

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/control"
)

// pathsTimeout bounds how long an agent may take to list its paths.
const pathsTimeout = 5 * time.Second

// PathInfo is what an agent knows about one path, as the API shows it.
type PathInfo struct {
	Peer     string           `json:"peer" doc:"Address of the other agent"`
	Port     uint16           `json:"port" doc:"Data port of the side that accepts connections"`
	Rate     uint64           `json:"bits_per_second" doc:"What the path carries, in bits of payload a second; 0: not known"`
	Doubtful bool             `json:"doubtful" doc:"It has not shown its rate for a while, and is tried at half"`
	Seen     time.Time        `json:"seen,omitzero" doc:"When it last showed its rate"`
	RTT      control.Duration `json:"rtt" doc:"Round trip without a queue; 0s: not known"`
	Queue    control.Duration `json:"queue" doc:"How much longer the round trip was at the last update"`
	Pace     uint64           `json:"pace_bits_per_second" doc:"What all sessions together may send, in bits of payload a second; 0 while none sends"`
	Sessions int              `json:"sessions" doc:"Sessions that have more to send than they may"`
	Phase    string           `json:"phase" doc:"What the agent does: find, try, hold, grow or drain"`
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
	ctx, cancel := context.WithTimeout(ctx, pathsTimeout)
	defer cancel()
	list, err := a.Client.Paths(ctx)
	if err != nil {
		return nil, api.Unavailable("agent %s does not list its paths: %v", in.Name, err)
	}
	out := make([]PathInfo, len(list))
	for i, p := range list {
		out[i] = PathInfo{
			Peer: p.Peer.String(), Port: p.Port, Rate: p.Rate, Doubtful: p.Doubtful, Seen: p.Seen, RTT: p.RTT, Queue: p.Queue,
			Pace: p.Pace, Sessions: p.Sessions, Phase: p.Phase,
		}
	}
	return &kit.Body[[]PathInfo]{Body: out}, nil
}

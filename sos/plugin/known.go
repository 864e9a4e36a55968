package plugin

import (
	"math"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// known is what the network knows of the paths between a session's agents, in the
// direction of what an agent sends: agents that have never met begin at their rate.
func (s *pairs) known(ss *session, from agentapi.Role) []agentapi.Path {
	top := s.net.Topology()
	s.mu.Lock()
	own, peer := ss.agent(from), ss.agent(other(from))
	_, a := terminal(own, ss.Layout.side(from).Agent)
	_, b := terminal(peer, ss.Layout.side(other(from)).Agent)
	routed, n, metric := ss.Layout.PeersRouted, max(ss.Tuning.Paths, 1), s.config.metric()
	s.mu.Unlock()
	if routed {
		return nil
	}
	var out []agentapi.Path
	known := false
	for _, hops := range routes(top, a, b, n, metric) {
		path := knownPath(top, hops)
		out, known = append(out, path), known || path != agentapi.Path{}
	}
	if !known {
		return nil
	}
	return out
}

// knownPath is what the links of a path leave free, and its round trip. The rate counts
// where the operator has said how fast the slowest link is: ports tell the speed of
// their cables, and what lies behind them may be slower.
func knownPath(top *topology.Topology, hops []network.Hop) agentapi.Path {
	var slowest topology.Link
	free := uint64(math.MaxUint64)
	trip, measured := time.Duration(0), true
	for _, h := range hops[:len(hops)-1] {
		l, ok := top.LinkFrom(outPort(h))
		back, both := top.LinkFrom(l.To)
		if !ok || !both {
			return agentapi.Path{}
		}
		trip += l.Latency + back.Latency
		measured = measured && l.Latency > 0 && back.Latency > 0 && l.Capacity > 0
		if slowest.Capacity == 0 || l.Capacity < slowest.Capacity {
			slowest = l
		}
		if l.Declared {
			free = min(free, l.Available())
		}
	}
	if !slowest.Declared || !measured {
		return agentapi.Path{}
	}
	return agentapi.Path{Rate: free, RTT: control.Duration(trip)}
}

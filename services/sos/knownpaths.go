package sos

import (
	"math"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// knownPaths returns what the network knows about the paths between a session's agents, in
// the direction in which an agent sends. Agents that have never met start at the rates of
// these paths.
func (s *pairs) knownPaths(ss *session, from agentapi.Role) []agentapi.Path {
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
		path := estimatePath(top, hops)
		out, known = append(out, path), known || path != agentapi.Path{}
	}
	if !known {
		return nil
	}
	return out
}

// estimatePath returns the free capacity of a path's links, and its round-trip time. The
// capacity counts only if the operator has declared that of the slowest link: ports report
// the speed of their cables, and what lies behind them may be slower.
func estimatePath(top *topology.Topology, hops []network.Hop) agentapi.Path {
	var slowest topology.Link
	free := uint64(math.MaxUint64)
	rtt, measured := time.Duration(0), true
	for _, h := range hops[:len(hops)-1] {
		l, ok := top.LinkFrom(outPort(h))
		back, okBack := top.LinkFrom(l.To)
		if !ok || !okBack {
			return agentapi.Path{}
		}
		rtt += l.Latency + back.Latency
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
	return agentapi.Path{Rate: free, RTT: control.Duration(rtt)}
}

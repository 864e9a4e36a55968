package sos

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/pathrate"
)

const (
	// Links are divided every shareEvery, and shareDebounce after a pair of agents has begun or ended
	// to have sessions. So each agent gets at most eleven limits a second.
	shareEvery, shareDebounce = time.Second, 100 * time.Millisecond
	// limitLifetime is how long agents keep a limit if the controller does not repeat it.
	limitLifetime = agentapi.Duration(5 * time.Second)
	// limitTimeout bounds the time to set the limits of one agent.
	limitTimeout = time.Second
	// A new sender counts as one that sends as much as it may for newSender.
	newSender = 2 * time.Second
	// A sender that sends less than it may counts with demandFactor times what it sends. One that has
	// more to send, but delivers less than halfLimit of its limit, is limited elsewhere: it counts with
	// twice what it delivers, and at least with leastShare of its limit.
	demandFactor, halfLimit, leastShare = 1.25, 0.5, 0.125
	// Only maxSenders senders are considered. The others have no limits.
	maxSenders = 2048
	// The estimated capacity of a link is kept for estimateAge after it was last shared.
	estimateAge = 10 * time.Minute
)

// direction is one direction of a link. If nothing is known of the links between two switches, all of
// them count as one, and the ports are zero.
type direction struct{ from, to network.PortRef }

// senderKey identifies what an agent sends on one path. The path is named as the agent names it: by
// the peer's address, and the data port of the agent that accepts connections.
type senderKey struct {
	agent *agent
	path  netip.AddrPort
}

// sender is what an agent sends on one path that shares links with others.
type sender struct {
	senderKey
	links  []direction          // all links of the path
	shared []direction          // those that others use, too
	since  time.Time            // since when the path has shared links
	status *agentapi.PathStatus // the last report; nil if there is none
	limit  float64              // bits of payload a second; +Inf for none
}

// estimate is the estimated capacity of a link that several senders share.
type estimate struct {
	pathrate.Link
	shared time.Time // when several senders last shared the link
}

// sharing divides links among the agents that send on them. Each agent knows what its own paths
// carry, but not which other agents send on the same links. Only run uses the fields.
type sharing struct {
	*core
	sessions  *sessions
	pairs     *pairs
	senders   map[senderKey]*sender
	estimates map[direction]*estimate
	estimated time.Time // when the estimates were last updated
	limited   map[*agent]bool
}

func newSharing(c *core, sessions *sessions, pairs *pairs) *sharing {
	return &sharing{core: c, sessions: sessions, pairs: pairs, senders: map[senderKey]*sender{}, estimates: map[direction]*estimate{}, limited: map[*agent]bool{}}
}

// run divides the links until ctx ends. The agents' limits then expire.
func (s *sharing) run(ctx context.Context) {
	s.divide.Run(ctx, shareDebounce, shareEvery, func(ctx context.Context) {
		now := time.Now()
		s.update(s.active(), now)
		s.send(ctx, s.limits(now))
	})
}

// active returns the links of all paths between agents with sessions, by sender.
func (s *sharing) active() map[senderKey][]direction {
	s.mu.Lock()
	defer s.mu.Unlock()
	type agentPair struct {
		client, server         *agent
		clientAddr, serverAddr netip.Addr
		paths                  int
	}
	all, seen := map[senderKey][]direction{}, map[agentPair]bool{}
	for _, ss := range s.sessions.byFlow {
		p := s.pairs.all[ss.pair]
		if p == nil || ss.client == nil {
			continue
		}
		x := agentPair{ss.client, ss.server, ss.Layout.ClientSide.Agent, ss.Layout.ServerSide.Agent, max(ss.Tuning.Paths, 1)}
		if seen[x] {
			continue
		}
		seen[x] = true
		_, from := terminal(x.client, x.clientAddr)
		_, to := terminal(x.server, x.serverAddr)
		ports := x.server.State().Status.DataPorts
		for k, port := range ports[:min(len(ports), x.paths)] {
			there, back := linksBetween(p.paths, k, from, to, x.serverAddr.Less(x.clientAddr))
			if len(there) > 0 {
				all[senderKey{x.client, netip.AddrPortFrom(x.serverAddr, port)}] = there
				all[senderKey{x.server, netip.AddrPortFrom(x.clientAddr, port)}] = back
			}
		}
	}
	return all
}

// linksBetween returns the links of path k between two agents, in both directions. reversed reports
// whether the paths lead to the first agent. Without a known path, the switches to which the agents
// are connected stand for all links between them.
func linksBetween(paths [][]network.Hop, k int, from, to network.PortRef, reversed bool) (there, back []direction) {
	if len(paths) == 0 {
		if from.Switch == to.Switch || from.IsZero() || to.IsZero() {
			return nil, nil
		}
		a, b := network.PortRef{Switch: from.Switch}, network.PortRef{Switch: to.Switch}
		return []direction{{a, b}}, []direction{{b, a}}
	}
	path := paths[min(k, len(paths)-1)]
	for i, h := range path[:len(path)-1] {
		near, far := outPort(h), inPort(path[i+1])
		there, back = append(there, direction{near, far}), append(back, direction{far, near})
	}
	if reversed {
		return back, there
	}
	return there, back
}

// update updates the senders: those on whose links others send, too.
func (s *sharing) update(active map[senderKey][]direction, now time.Time) {
	users := map[direction]int{}
	for _, links := range active {
		for _, l := range links {
			users[l]++
		}
	}
	before, added := s.senders, 0
	s.senders = map[senderKey]*sender{}
	for k, links := range active {
		shared := slices.DeleteFunc(slices.Clone(links), func(l direction) bool { return users[l] < 2 })
		if len(shared) == 0 {
			continue
		}
		x := before[k]
		if x == nil {
			if added++; len(before)+added > maxSenders {
				continue
			}
			x = &sender{senderKey: k, since: now, limit: math.Inf(1)}
		}
		x.links, x.shared = links, shared
		s.senders[k] = x
	}
	if now.Sub(s.estimated) >= shareEvery*9/10 {
		s.estimated = now
		s.updateEstimates(now)
	}
}

// updateEstimates updates the estimated capacities of the shared links with the agents' reports.
func (s *sharing) updateEstimates(now time.Time) {
	samples, sending := map[direction]*pathrate.LinkSample{}, map[direction]int{}
	for _, x := range s.senders {
		for _, l := range x.shared {
			if samples[l] == nil {
				samples[l] = &pathrate.LinkSample{Queued: true}
			}
			if x.status == nil {
				continue
			}
			sample := samples[l]
			if !x.status.Seen.IsZero() && !x.status.Doubtful {
				sample.Known = max(sample.Known, float64(x.status.Rate))
			}
			sample.Delivered += float64(x.status.Delivered)
			if x.status.Sessions > 0 {
				sending[l]++
				sample.Queued = sample.Queued && x.status.Queued
			}
		}
	}
	for l, sample := range samples {
		if s.estimates[l] == nil {
			s.estimates[l] = &estimate{}
		}
		sample.Queued = sample.Queued && sending[l] > 0
		s.estimates[l].Update(*sample)
		s.estimates[l].shared = now
	}
	maps.DeleteFunc(s.estimates, func(_ direction, e *estimate) bool { return now.Sub(e.shared) > estimateAge })
}

// wants returns the rate that a sender has to send, in bits of payload a second; +Inf if it would
// send as much as it may.
func (x *sender) wants(now time.Time) float64 {
	if x.status == nil || now.Sub(x.since) < newSender {
		return math.Inf(1)
	}
	delivered := float64(x.status.Delivered)
	switch {
	case x.status.Sessions == 0:
		return demandFactor * delivered
	case math.IsInf(x.limit, 1) || delivered >= halfLimit*x.limit:
		return math.Inf(1)
	}
	return max(2*delivered, leastShare*x.limit)
}

// capacity returns the capacity of a shared link, in bits of payload a second; +Inf if it is not
// known.
func (s *sharing) capacity(top *topology.Topology, d direction) float64 {
	if l, ok := top.LinkFrom(d.from); ok && l.Declared {
		return float64(l.Capacity) * agentapi.PayloadShare
	}
	if e := s.estimates[d]; e != nil {
		return e.Capacity()
	}
	return math.Inf(1)
}

// pathRate returns the rate of a path with the given links, in bits of payload a second; zero if it
// is not known. It is known if the capacity of the slowest link is declared, or a link has shown it.
func (s *sharing) pathRate(top *topology.Topology, links []direction) uint64 {
	var slowest topology.Link
	least, known, speeds := math.Inf(1), false, true
	for _, d := range links {
		l, ok := top.LinkFrom(d.from)
		speeds = speeds && ok && l.Capacity > 0
		if slowest.Capacity == 0 || l.Capacity < slowest.Capacity {
			slowest = l
		}
		if ok && l.Declared {
			least = min(least, float64(l.Capacity)*agentapi.PayloadShare)
		} else if e := s.estimates[d]; e != nil && e.Shown() > 0 {
			least, known = min(least, e.Shown()), true
		}
	}
	if !known && !(speeds && slowest.Declared) {
		return 0
	}
	return uint64(min(least, agentapi.MaxPathRate))
}

// limits divides the shared links, and returns the limits of each agent.
func (s *sharing) limits(now time.Time) map[*agent][]agentapi.Limit {
	top := s.net.Topology()
	var capacities []float64
	index := map[direction]int{}
	list := slices.SortedFunc(maps.Values(s.senders), func(a, b *sender) int {
		return cmp.Or(cmp.Compare(a.agent.Name, b.agent.Name), a.path.Compare(b.path))
	})
	demands := make([]pathrate.Sender, len(list))
	for i, x := range list {
		demands[i].Wants = x.wants(now)
		for _, l := range x.shared {
			if _, ok := index[l]; !ok {
				index[l] = len(capacities)
				capacities = append(capacities, s.capacity(top, l))
			}
			demands[i].Links = append(demands[i].Links, index[l])
		}
	}
	out := map[*agent][]agentapi.Limit{}
	for i, pace := range pathrate.Divide(capacities, demands) {
		x := list[i]
		if !math.IsInf(pace, 1) {
			pace = min(pace, agentapi.MaxPathRate)
		}
		x.limit = pace
		l := agentapi.Limit{Peer: x.path.Addr(), Port: x.path.Port(), Rate: s.pathRate(top, x.links)}
		if !math.IsInf(pace, 1) {
			l.Pace = max(uint64(pace), 1) // zero stands for no limit
		}
		if len(out[x.agent]) < agentapi.MaxLimits {
			out[x.agent] = append(out[x.agent], l)
		}
	}
	return out
}

// send sets the limits of all agents that have or had some, and stores the reports that they return.
func (s *sharing) send(ctx context.Context, limits map[*agent][]agentapi.Limit) {
	for a := range s.limited {
		if _, ok := limits[a]; !ok {
			limits[a] = []agentapi.Limit{}
		}
	}
	s.limited = map[*agent]bool{}
	var mu sync.Mutex
	reports := map[senderKey]*agentapi.PathStatus{}
	eachUp(maps.Keys(limits), func(a *agent) {
		ctx, cancel := context.WithTimeout(ctx, limitTimeout)
		defer cancel()
		list, err := a.Client.Limit(ctx, agentapi.Limits{Limits: limits[a], Lifetime: limitLifetime})
		if err != nil {
			s.log.Debug("limits of paths could not be set", "agent", a.Name, "error", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if len(limits[a]) > 0 {
			s.limited[a] = true
		}
		for i, x := range list {
			reports[senderKey{a, netip.AddrPortFrom(x.Peer, x.Port)}] = &list[i]
		}
	})
	for k, x := range s.senders {
		x.status = reports[k]
	}
}

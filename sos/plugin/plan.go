package plugin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// resolveTimeout bounds the search for a server that is not known yet;
	// startTimeout does while we have just been started, and nobody is known.
	resolveTimeout = 500 * time.Millisecond
	startTimeout   = 2 * time.Second
	// newsFor is how long after its first word, or our start, it may take until an
	// agent has told its ports and has been found in the network.
	newsFor = 2 * time.Second
)

// offer is a connection's first packet as its interception switch saw it.
type offer struct {
	flow           flow
	at             network.PortRef
	ethSrc, ethDst openflow.MAC
	vlan           uint16
	isn            uint32 // the client's initial sequence number
}

// endpoint is an end host, or the router it is reached by.
type endpoint struct {
	place
	// routed says that a router stands between the two ends.
	routed bool
}

// findServer finds the place at which the server is intercepted: its own, or
// else that of the router by which the client reaches it.
func (s *Service) findServer(ctx context.Context, o offer) (endpoint, error) {
	addr := o.flow.server.Addr()
	h, ok := s.net.HostByIP(addr)
	if !ok {
		limit := resolveTimeout
		s.mu.Lock()
		if time.Since(s.began) < s.opts.Settle {
			limit = startTimeout
		}
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var err error
		if h, err = s.net.ResolveHost(ctx, addr); err != nil {
			if h, ok = s.net.HostByMAC(o.ethDst, o.vlan); !ok {
				return endpoint{}, fmt.Errorf("%w: %v: %w", errNoServer, addr, err)
			}
		}
	}
	return endpoint{place: placeOf(h), routed: h.MAC != o.ethDst}, nil
}

// candidates describes the agents for the choice. The lock is held.
func (s *Service) candidates(o offer, server place, top *topology.Topology, metric network.Metric, refused map[*agent]bool) ([]Candidate, []*agent) {
	list := make([]Candidate, 0, len(s.agents))
	agents := make([]*agent, 0, len(s.agents))
	for _, a := range s.agents {
		c := Candidate{
			Name: a.record.Name, ToClient: math.Inf(1), ToServer: math.Inf(1),
			Sessions: a.sessions, Limit: a.limit(),
			Throughput: a.status.BitsPerSecondIn + a.status.BitsPerSecondOut,
			Unfit:      a.unfit(o.flow.client.Addr()),
		}
		if refused[a] {
			c.Unfit = "has just refused a session"
		}
		if c.Unfit == "" {
			addr, _ := a.record.addr(o.flow.client.Addr())
			at := a.places[addr].at
			c.ToClient, c.ToServer = s.costs.between(top, o.at, at, metric), s.costs.between(top, server.at, at, metric)
		}
		list, agents = append(list, c), append(agents, a)
	}
	return list, agents
}

// costs remembers path costs for as long as the network does not change, so
// that many connections at once do not search the same paths.
type costs struct {
	version uint64
	metric  network.Metric
	known   map[[2]openflow.DatapathID]float64
}

// between is the cost of the best path, infinite if there is none.
func (c *costs) between(top *topology.Topology, from, to network.PortRef, m network.Metric) float64 {
	if c.known == nil || c.version != top.Version || c.metric != m {
		*c = costs{version: top.Version, metric: m, known: map[[2]openflow.DatapathID]float64{}}
	}
	key := [2]openflow.DatapathID{from.Switch, to.Switch}
	cost, ok := c.known[key]
	if !ok {
		cost = math.Inf(1)
		if p, found := top.Path(from, to, m); found {
			cost = p.Cost
		}
		c.known[key] = cost
	}
	return cost
}

// assignInTime has a connection wait for agents of which there is news, if none of
// the others will do.
func (s *Service) assignInTime(ctx context.Context, ss *session, o offer, server place, refused map[*agent]bool) error {
	for {
		err := s.assign(ss, o, server, refused)
		if !errors.Is(err, ErrNoGain) || !s.expectsAgents() || tasks.Sleep(ctx, settleEvery) != nil {
			return err
		}
	}
}

// expectsAgents says whether an agent that cannot be used yet will soon be.
func (s *Service) expectsAgents() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.agents {
		ready := a.liveness == AgentUp && len(a.status.DataPorts) > 0 && len(a.places) == len(a.record.Addrs)
		fresh := time.Since(a.news) < newsFor || time.Since(s.began) < newsFor
		if !ready && fresh && a.liveness != AgentSilent {
			return true
		}
	}
	return false
}

// assign chooses the session's agents and counts it as theirs at once, so that
// sessions set up at the same time spread.
func (s *Service) assign(ss *session, o offer, server place, refused map[*agent]bool) error {
	top := s.net.Topology()
	s.mu.Lock()
	defer s.mu.Unlock()
	metric := s.config.metric()
	list, agents := s.candidates(o, server, top, metric, refused)
	limit := tolerance(metric, time.Duration(s.config.EqualLatency).Seconds())
	x, y, err := Choose(list, limit, s.config.Balance)
	if err != nil {
		return err
	}
	ss.client, ss.server = agents[x], agents[y]
	ss.client.sessions++
	ss.server.sessions++
	return nil
}

// release takes the session off its agents' counts. The lock is held.
func (ss *session) release() {
	if ss.client != nil {
		ss.client.sessions--
		ss.server.sessions--
	}
}

// plan computes the session's layout but for what only the agents know.
func (s *Service) plan(ss *session, o offer, server endpoint) error {
	top := s.net.Topology()
	s.mu.Lock()
	defer s.mu.Unlock()
	metric := s.config.metric()
	ss.clientAt, ss.serverAt = o.at, server.at
	ss.layout = Layout{
		Client: o.flow.client, Server: o.flow.server,
		ClientSide: Side{EndMAC: o.ethSrc, FarMAC: o.ethDst, EndVLAN: o.vlan},
		ServerSide: Side{EndMAC: server.mac, EndVLAN: server.vlan},
	}
	if !server.routed {
		ss.layout.ServerSide.FarMAC = o.ethSrc
	}
	for _, side := range []struct {
		side *Side
		a    *agent
		from network.PortRef
	}{{&ss.layout.ClientSide, ss.client, o.at}, {&ss.layout.ServerSide, ss.server, server.at}} {
		if err := side.side.attach(side.a, o.flow.client.Addr(), side.from, top, metric); err != nil {
			return err
		}
	}
	ss.layout.ClientSide.PuntsSYN = s.seesTCPFlags(o.at.Switch)
	last := func(sd *Side) network.PortRef {
		h := sd.Path[len(sd.Path)-1]
		return network.PortRef{Switch: h.Switch, Port: h.Out}
	}
	_, ss.layout.Steered = top.Path(last(&ss.layout.ClientSide), last(&ss.layout.ServerSide), network.MetricHops)
	return nil
}

// attach puts the agent and the way to it into the side.
func (sd *Side) attach(a *agent, family netip.Addr, from network.PortRef, top *topology.Topology, metric network.Metric) error {
	addr, _ := a.record.addr(family)
	p, known := a.places[addr]
	if !known {
		return fmt.Errorf("agent %s %s", a.record.Name, a.unfit(family))
	}
	path, ok := top.Path(from, p.at, metric)
	if !ok {
		return fmt.Errorf("from %v to agent %s at %v: %w", from, a.record.Name, p.at, network.ErrNoPath)
	}
	sd.Agent, sd.AgentMAC, sd.AgentVLAN, sd.Path = addr, p.mac, p.vlan, path.Hops
	return nil
}

// settle completes the layout with what the agents have bound.
func (l *Layout) settle(client, server agentapi.PrepareReply) error {
	for _, x := range []struct {
		side  *Side
		reply agentapi.PrepareReply
	}{{&l.ClientSide, client}, {&l.ServerSide, server}} {
		if x.reply.Port == 0 {
			return fmt.Errorf("agent %v answered without a port", x.side.Agent)
		}
		x.side.AgentPort, x.side.OnLink = x.reply.Port, x.reply.OnLink
	}
	l.PeersRouted = !client.PeerOnLink || !server.PeerOnLink
	if l.ServerSide.FarMAC.IsZero() && server.NextHopMAC != "" {
		mac, err := openflow.ParseMAC(server.NextHopMAC)
		if err != nil {
			return fmt.Errorf("next hop of agent %v: %w", l.ServerSide.Agent, err)
		}
		l.ServerSide.FarMAC = mac
	}
	return nil
}

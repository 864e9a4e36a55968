package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/sos/agentapi"
)

const (
	// resolveTimeout bounds the search for a server that is not known yet;
	// startTimeout does while we have just been started, and nobody is known.
	resolveTimeout = 500 * time.Millisecond
	startTimeout   = 2 * time.Second
	// newsFor is how long after our start it may take until agents have told their
	// ports and have been found in the network.
	newsFor = 2 * time.Second
)

// offer is a connection's first packet as its interception switch saw it.
type offer struct {
	flow           flow
	at             network.PortRef
	ethSrc, ethDst openflow.MAC
	vlan           uint16
	isn            uint32 // the client's initial sequence number
	dscp           uint8
	anchor         *network.Anchor // of a client that moves
}

// client is the end that has sent the packet.
func (o *offer) client() endpoint {
	e := endpoint{Place: agents.Place{At: o.at, MAC: o.ethSrc, VLAN: o.vlan}, anchor: o.anchor}
	if o.anchor != nil {
		e.MAC = o.anchor.MAC
	}
	return e
}

// endpoint is an end host, or the router it is reached by.
type endpoint struct {
	agents.Place
	// routed says that a router stands between the two ends.
	routed bool
	// anchor is set for one that moves: its place is then a border.
	anchor *network.Anchor
}

// findServer finds the place at which the server is intercepted: its own, or
// else that of the router by which the client reaches it.
func (s *Service) findServer(ctx context.Context, o offer) (endpoint, error) {
	addr := o.flow.server.Addr()
	a := s.anchorOf(addr)
	for _, moving := range []*network.Anchor{o.anchor, a} {
		if moving == nil {
			continue
		}
		if err := s.carriable(moving); err != nil {
			return endpoint{}, err
		}
	}
	if a != nil {
		if o.anchor != nil {
			return endpoint{}, fmt.Errorf("%w, and so is the other: their packets need not pass a border", errMoves)
		}
		return endpoint{Place: agents.Place{At: a.Borders[0], MAC: a.MAC}, routed: a.MAC != o.ethDst, anchor: a}, nil
	}
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
	return endpoint{Place: agents.PlaceOf(h), routed: h.MAC != o.ethDst}, nil
}

// assignInTime has a connection wait for agents of which there is news, if none of
// the others will do.
func (s *Service) assignInTime(ctx context.Context, ss *session, o offer, server endpoint, refused map[*agent]bool) error {
	for {
		err := s.assign(ss, o, server, refused)
		if !errors.Is(err, ErrNoGain) || !s.agents.Expected(s.justBegun()) || tasks.Sleep(ctx, settleEvery) != nil {
			return err
		}
	}
}

// justBegun says whether the start has been over for a moment only.
func (s *Service) justBegun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.began) < newsFor
}

// assign chooses the session's agents and counts it as theirs at once, so that
// sessions set up at the same time spread.
func (s *Service) assign(ss *session, o offer, server endpoint, refused map[*agent]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	metric := s.config.metric()
	top := s.net.Topology()
	list, of := s.agents.Candidates(o.flow.client.Addr(), refused, s.nearTo(o.client(), top, metric), s.nearTo(server, top, metric))
	limit := agents.Tolerance(metric, time.Duration(s.config.EqualLatency).Seconds())
	x, y, err := Choose(list, limit, s.config.Balance)
	switch moves := o.anchor != nil || server.anchor != nil; {
	case err != nil && moves:
		return fmt.Errorf("%w, and its agent has to stand at its border: %w", errMoves, err)
	case err != nil:
		return err
	}
	ss.client, ss.server = of[x], of[y]
	ss.client.Take()
	ss.server.Take()
	return nil
}

// release takes the session off its agents' counts. The lock is held.
func (ss *session) release() {
	if ss.client != nil {
		ss.client.Release()
		ss.server.Release()
	}
}

// plan computes the session's layout but for what only the agents know.
func (s *Service) plan(ss *session, o offer, server endpoint) error {
	top := s.net.Topology()
	s.mu.Lock()
	defer s.mu.Unlock()
	metric := s.config.metric()
	client := o.client()
	ss.clientAt, ss.serverAt = o.at, server.At
	ss.layout = Layout{
		Client: o.flow.client, Server: o.flow.server, DSCP: o.dscp,
		ClientSide: Side{EndMAC: client.MAC, FarMAC: o.ethDst, EndVLAN: o.vlan},
		ServerSide: Side{EndMAC: server.MAC, EndVLAN: server.VLAN},
	}
	if !server.routed {
		ss.layout.ServerSide.FarMAC = client.MAC
	}
	for _, side := range []struct {
		side *Side
		a    *agent
		end  endpoint
	}{{&ss.layout.ClientSide, ss.client, client}, {&ss.layout.ServerSide, ss.server, server}} {
		if err := side.side.attach(side.a, o.flow.client.Addr(), side.end, top, metric); err != nil {
			return err
		}
	}
	ss.layout.ClientSide.PuntsSYN = s.puntsSYN(&ss.layout.ClientSide)
	ss.epoch = s.treatments.Epoch()
	ss.layout.treat(s.treatments.Of)
	last := func(sd *Side) network.PortRef {
		h := sd.Path[len(sd.Path)-1]
		return network.PortRef{Switch: h.Switch, Port: h.Out}
	}
	_, ss.layout.Steered = top.Path(last(&ss.layout.ClientSide), last(&ss.layout.ServerSide), network.MetricHops)
	return nil
}

// attach puts the agent and the way to it into the side.
func (sd *Side) attach(a *agent, family netip.Addr, end endpoint, top *topology.Topology, metric network.Metric) error {
	st := a.State()
	addr, _ := st.Addr(family)
	p, known := st.Places[addr]
	if !known {
		return fmt.Errorf("agent %s %s", a.Name, st.Unfit(family))
	}
	sd.Agent, sd.AgentMAC, sd.AgentVLAN = addr, p.MAC, p.VLAN
	if end.anchor != nil {
		var err error
		if sd.Ways, err = waysTo(end.anchor, p.At, top, metric); err != nil {
			return fmt.Errorf("agent %s: %w", a.Name, err)
		}
	}
	path, ok := top.Path(end.At, p.At, metric)
	if !ok {
		return fmt.Errorf("from %v to agent %s at %v: %w", end.At, a.Name, p.At, network.ErrNoPath)
	}
	sd.Path = path.Hops
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

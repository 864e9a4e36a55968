package sos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const (
	// resolveTimeout bounds the search for a server that is not known yet. startTimeout
	// bounds it shortly after a start, when no host is known.
	resolveTimeout = 500 * time.Millisecond
	startTimeout   = 2 * time.Second
	// announceTimeout is how long after a start it may take until agents have reported
	// their ports and have been found in the network.
	announceTimeout = 2 * time.Second
)

// offer is the first packet of a connection as its interception switch saw it.
type offer struct {
	flow           flow
	at             network.PortRef
	ethSrc, ethDst openflow.MAC
	vlan           uint16
	isn            uint32 // the client's initial sequence number
	dscp           uint8
	anchor         *network.Anchor // set if the client is mobile
}

// client returns the end that has sent the packet.
func (o *offer) client() endpoint {
	e := endpoint{Place: agents.Place{At: o.at, MAC: o.ethSrc, VLAN: o.vlan}, anchor: o.anchor}
	if o.anchor != nil {
		e.MAC = o.anchor.MAC
	}
	return e
}

// endpoint is an end host, or the router that leads to it.
type endpoint struct {
	agents.Place
	// routed reports that a router stands between the two ends.
	routed bool
	// anchor is set if the end host is mobile: its place is then a border.
	anchor *network.Anchor
}

// findServer finds the place at which the server is intercepted: its own, or that of the
// router by which the client reaches it.
func (x *setup) findServer(ctx context.Context) (endpoint, error) {
	addr := x.o.flow.server.Addr()
	a := x.anchorOf(addr)
	for _, moving := range []*network.Anchor{x.o.anchor, a} {
		if err := x.checkCarriable(moving); err != nil {
			return endpoint{}, err
		}
	}
	if a != nil {
		if x.o.anchor != nil {
			return endpoint{}, fmt.Errorf("%w, and so is the other: their packets need not pass a border", errMobile)
		}
		return endpoint{Place: agents.Place{At: a.Borders[0], MAC: a.MAC}, routed: a.MAC != x.o.ethDst, anchor: a}, nil
	}
	h, ok := x.net.HostByIP(addr)
	if !ok {
		limit := resolveTimeout
		if x.beganWithin(x.opts.Settle) {
			limit = startTimeout
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var err error
		if h, err = x.net.ResolveHost(ctx, addr); err != nil {
			if h, ok = x.net.HostByMAC(x.o.ethDst, x.o.vlan); !ok {
				return endpoint{}, fmt.Errorf("%w: %v: %w", errNoServer, addr, err)
			}
		}
	}
	return endpoint{Place: agents.PlaceOf(h), routed: h.MAC != x.o.ethDst}, nil
}

// assignOrWait assigns agents. If no agent will do, it waits for agents that are expected
// to announce themselves.
func (x *setup) assignOrWait(ctx context.Context, refused map[*agent]bool) error {
	for {
		err := x.assign(refused)
		if !errors.Is(err, ErrNoGain) || !x.agents.Expected(x.beganWithin(announceTimeout)) || tasks.Sleep(ctx, settleEvery) != nil {
			return err
		}
	}
}

// assign chooses the session's agents and counts the session as theirs at once, so that
// sessions set up at the same time are spread over the agents.
func (x *setup) assign(refused map[*agent]bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	metric, top := x.config.metric(), x.net.Topology()
	list, of := x.agents.Candidates(x.o.flow.client.Addr(), refused, x.costTo(x.o.client(), top, metric), x.costTo(x.server, top, metric))
	limit := agents.Tolerance(metric, time.Duration(x.config.EqualLatency).Seconds())
	client, server, err := Choose(list, limit, x.config.Balance)
	switch moves := x.o.anchor != nil || x.server.anchor != nil; {
	case err != nil && moves:
		return fmt.Errorf("%w, and its agent has to stand at its border: %w", errMobile, err)
	case err != nil:
		return err
	}
	x.ss.assignAgents(of[client], of[server])
	return nil
}

// assignAgents sets the session's agents and counts the session as theirs. The lock is
// held.
func (ss *session) assignAgents(client, server *agent) {
	ss.client, ss.server, ss.ClientAgent, ss.ServerAgent = client, server, client.Name, server.Name
	client.Take()
	server.Take()
}

// releaseAgents removes the session from its agents' counts. The lock is held.
func (ss *session) releaseAgents() {
	if ss.client != nil {
		ss.client.Release()
		ss.server.Release()
	}
}

// plan computes the session's layout, except for what only the agents know.
func (x *setup) plan() error {
	top := x.net.Topology()
	x.mu.Lock()
	defer x.mu.Unlock()
	metric := x.config.metric()
	ss, client, server := x.ss, x.o.client(), x.server
	ss.ClientAt, ss.ServerAt = x.o.at, server.At
	ss.Layout = Layout{
		Client: x.o.flow.client, Server: x.o.flow.server, DSCP: x.o.dscp,
		ClientSide: Side{EndMAC: client.MAC, FarMAC: x.o.ethDst, EndVLAN: x.o.vlan},
		ServerSide: Side{EndMAC: server.MAC, EndVLAN: server.VLAN},
	}
	l := &ss.Layout
	if !server.routed {
		l.ServerSide.FarMAC = client.MAC
	}
	if err := l.ClientSide.attach(ss.client, x.o.flow.client.Addr(), client, top, metric); err != nil {
		return err
	}
	if err := l.ServerSide.attach(ss.server, x.o.flow.client.Addr(), server, top, metric); err != nil {
		return err
	}
	l.ClientSide.PuntsSYN = x.puntsSYN(&l.ClientSide)
	ss.epoch = x.treatments.Epoch()
	l.updateTreatments(x.treatments.Of)
	_, l.Steered = top.Path(l.ClientSide.agentAt(), l.ServerSide.agentAt(), network.MetricHops)
	return nil
}

// attach sets the agent of a side and the path to it.
func (sd *Side) attach(a *agent, family netip.Addr, end endpoint, top *topology.Topology, metric network.Metric) error {
	st := a.State()
	addr, _ := st.Addr(family)
	p, ok := st.Places[addr]
	if !ok {
		return fmt.Errorf("agent %s %s", a.Name, st.Unfit(family))
	}
	sd.Agent, sd.AgentMAC, sd.AgentVLAN = addr, p.MAC, p.VLAN
	if end.anchor != nil {
		var err error
		if sd.MobilePaths, err = pathsTo(end.anchor, p.At, top, metric); err != nil {
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

// complete adds the ports that the agents have bound, and what else they have answered, to
// the layout.
func (l *Layout) complete(client, server agentapi.PrepareReply) error {
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

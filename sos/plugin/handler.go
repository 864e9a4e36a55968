package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
)

// heldExtra is how much longer a first packet is held than its set-up may take:
// the time to undo it.
const heldExtra = 3 * time.Second

// HandlePacketIn looks for first packets of whitelisted connections. It runs on
// the switch's goroutine and never waits.
func (s *Service) HandlePacketIn(p *network.PacketIn) network.Verdict {
	if !p.Headers.Has(packet.TCP) || p.Headers.IsFragment() {
		return network.Continue
	}
	at := network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}
	if s.view.Load().guards(&p.Headers) {
		return s.fromAgent(flow{client: p.Headers.Source(), server: p.Headers.Destination()}, p.Resubmit)
	}
	return s.segment(at, &p.Headers, packetIn{p})
}

// segment decides about a TCP segment that a switch sent up.
func (s *Service) segment(at network.PortRef, h *packet.Headers, p punted) network.Verdict {
	f := flow{client: h.Source(), server: h.Destination()}
	if !h.IsSYN() {
		return s.answerReset(at, f, h)
	}
	v := s.view.Load()
	if !v.enabled || v.agents[f.client.Addr().String()] || v.agents[f.server.Addr().String()] {
		return network.Continue
	}
	entry, ok := v.whitelist.Find(time.Now(), f.client.Addr(), f.server)
	if !ok {
		return network.Continue
	}
	o := offer{flow: f, at: at, ethSrc: h.EthSrc, ethDst: h.EthDst, isn: h.Seq, dscp: h.DSCP, anchor: s.anchorOf(f.client.Addr())}
	top := s.net.Topology()
	if o.anchor == nil && !top.IsEdge(at) || o.anchor != nil && !passes(o.anchor, at, top) {
		return network.Continue
	}
	if h.VLANTags > 0 {
		o.vlan = h.VLANID
	}
	return s.offered(o, entry, p)
}

// offered admits a connection, lets its retransmitted first packet join, or
// lets it go directly.
func (s *Service) offered(o offer, entry *Entry, p punted) network.Verdict {
	s.mu.Lock()
	if old := s.sessions[o.flow]; old != nil && old.state != StateSetup {
		s.mu.Unlock()
		return s.again(old, o, entry, p)
	}
	ss, verdict := s.admit(o, entry)
	limit := s.config.setupTime()
	s.mu.Unlock()
	if ss == nil {
		return verdict
	}
	held, err := p.Hold(limit + heldExtra)
	if err != nil {
		s.mu.Lock()
		s.forget(ss)
		s.directs.add(ReasonHold, err.Error(), time.Now())
		s.mu.Unlock()
		s.metrics.refused.WithLabelValues(string(ReasonHold)).Inc()
		return network.Continue
	}
	if !s.start(func(run context.Context) { s.setUp(run, ss, o, held) }) {
		_ = held.Forward()
	}
	return network.Stop
}

// admit makes a session of an offer, unless it is one already or there are too
// many. The lock is held.
func (s *Service) admit(o offer, entry *Entry) (*session, network.Verdict) {
	now := time.Now()
	switch old := s.sessions[o.flow]; {
	case old != nil:
		// The packet that is being held will do for both.
		return nil, network.Stop
	case s.passed.has(opening{o.flow, o.isn}, now):
		return nil, network.Stop // a late copy
	case s.direct.has(o.flow, now):
		return nil, network.Continue
	}
	client := o.flow.client.Addr().String()
	var reason Reason
	var cause string
	switch {
	case !s.running:
		reason, cause = ReasonStarting, "the service was not ready yet"
	case s.setups >= s.config.MaxSetups:
		reason, cause = ReasonSetups, fmt.Sprintf("%d connections were being set up, which is max_setups", s.setups)
	case s.perClient[client] >= s.config.MaxSetupsPerClient:
		reason, cause = ReasonClient, fmt.Sprintf("%d connections of %s were being set up, which is max_setups_per_client", s.perClient[client], client)
	}
	if reason != "" {
		s.metrics.refused.WithLabelValues(string(reason)).Inc()
		s.directs.add(reason, cause, now)
		s.direct.add(o.flow, now)
		return nil, network.Continue
	}
	ss := newSession(o.flow, entry, s.config.Tuning, now)
	ss.isn = o.isn
	s.sessions[o.flow], s.byID[ss.id] = ss, ss
	s.setups++
	s.perClient[client]++
	return ss, network.Stop
}

// admitted ends the time in which a session counts as being set up. The lock is held.
func (s *Service) admitted(ss *session) {
	s.setups--
	client := ss.flow.client.Addr().String()
	if s.perClient[client]--; s.perClient[client] <= 0 {
		delete(s.perClient, client)
	}
}

// forget undoes admit. The lock is held.
func (s *Service) forget(ss *session) {
	s.admitted(ss)
	delete(s.sessions, ss.flow)
	delete(s.byID, ss.id)
	s.forgetAgentFlows(ss)
}

package sos

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
)

// HandlePacketIn handles the first packets of whitelisted connections. It runs on the
// switch's goroutine and never blocks.
func (s *Service) HandlePacketIn(p *network.PacketIn) network.Verdict {
	if !p.Headers.Has(packet.TCP) || p.Headers.IsFragment() {
		return network.Continue
	}
	if s.selection.snapshot.Load().fromSessionPort(&p.Headers) {
		return s.fromAgent(flow{client: p.Headers.Source(), server: p.Headers.Destination()}, p.Resubmit)
	}
	if p.Headers.IsSYN() {
		options := p.Headers.TCPOptions(p.Data)
		if packet.MPTCPOf(options).Join {
			return network.Continue // a subflow of an existing connection, which goes without agents
		}
		if packet.IsTCPSigned(options) {
			return s.signed(flow{client: p.Headers.Source(), server: p.Headers.Destination()})
		}
	}
	at := network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}
	return s.segment(at, &p.Headers, packetIn{p})
}

// fromAgent handles a segment from an agent's session port. If the segment belongs to a
// session, a switch forwarded it by a cached decision although the session's rules are
// installed, so fromAgent sends it through the tables again. It drops every other segment
// as a stray.
func (s *Service) fromAgent(f flow, resubmit func() error) network.Verdict {
	s.mu.Lock()
	_, ok := s.sessions.agentFlows[f]
	s.mu.Unlock()
	if ok {
		err := resubmit()
		if err == nil {
			s.metrics.resubmitted.Inc()
			return network.Stop
		}
		if !errors.Is(err, network.ErrResubmitted) {
			s.log.Debug("packet of an agent could not be sent on", "flow", f, "error", err)
		}
	}
	s.metrics.strays.Inc()
	return network.Stop
}

// signed leaves a connection whose segments are signed with a key of its ends (TCP-MD5, TCP-AO) to
// default forwarding. An agent does not have the key, and could not answer for either end.
func (s *Service) signed(f flow) network.Verdict {
	if s.selection.snapshot.Load().find(f) != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sessions.refuse(ReasonSigned, fmt.Sprintf("%v signs its segments (TCP-MD5 or TCP-AO)", f), time.Now())
	}
	return network.Continue
}

// segment handles a TCP segment that a switch sent to the controller.
func (s *Service) segment(at network.PortRef, h *packet.Headers, p punted) network.Verdict {
	f := flow{client: h.Source(), server: h.Destination()}
	if !h.IsSYN() {
		return s.resets.answer(at, f, h)
	}
	entry := s.selection.snapshot.Load().find(f)
	if entry == nil {
		return network.Continue
	}
	if _, virtual := s.net.Virtual(f.server.Addr()); virtual {
		return network.Continue // another service owns the address, and its handler is called later
	}
	o := offer{flow: f, at: at, ethSrc: h.EthSrc, ethDst: h.EthDst, isn: h.Seq, dscp: h.DSCP, anchor: s.anchorOf(f.client.Addr())}
	top := s.net.Topology()
	if o.anchor == nil && !top.IsEdge(at) || o.anchor != nil && !mayEnterAt(o.anchor, at, top) {
		return network.Continue
	}
	if h.VLANTags > 0 {
		o.vlan = h.VLANID
	}
	return s.setups.handleOffer(o, entry, p)
}

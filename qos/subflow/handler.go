package subflow

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/match"
	"github.com/sluice-net/sluice/qos/way"
)

// maxWaiting bounds the SYNs of a subflow that wait for its placement: it is sent again.
const maxWaiting = 4

// Held is a SYN that waits; a *network.Held.
type Held interface {
	// Release sends it by the rules that are there now, Output by actions.
	Release() error
	Output(actions []openflow.Action) error
}

// What becomes of a SYN with the mark.
const (
	outcomePlaced  = "placed"
	outcomeFailed  = "failed"       // no path was found, or a switch did not take its rules
	outcomePlain   = "not-a-join"   // plain TCP, a first subflow, or a fallback to TCP
	outcomeInside  = "inside"       // it does not come from a host
	outcomeForged  = "forged"       // its sender is elsewhere
	outcomeUnknown = "unknown-host" // nobody knows where its sender or its receiver is
	outcomeMoves   = "mobile"       // a mobile device's way is that of its service
	outcomeMost    = "most-of-port" // as many that come from there have been placed
	outcomeFull    = "most-in-all"  // as many have been placed as may be
	outcomeBusy    = "busy"         // too many are being placed
)

// Name implements network.Handler.
func (s *Service) Name() string { return "subflows" }

// HandlePacketIn looks for SYNs that join a connection. It runs on the switch's goroutine and
// never waits.
func (s *Service) HandlePacketIn(p *network.PacketIn) network.Verdict {
	h := &p.Headers
	if !s.Enabled || h.DSCP != s.DSCP || !h.IsIP() || h.IsFragment() || !h.IsSYN() {
		return network.Continue
	}
	at := network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}
	m := packet.MPTCPOf(h.TCPOptions(p.Data))
	if s.syn(at, h, m, func() (Held, error) { return p.Hold(holdFor) }) == network.Stop {
		return network.Stop
	}
	s.unplaced(at)
	if m.Join && s.Network.IsEdge(at) && p.Output(unmarked) == nil {
		return network.Stop
	}
	return network.Continue
}

// unmarked sends a SYN by the rules that are there without the mark, with which each switch of its
// way would bring it up again.
var unmarked = []openflow.Action{openflow.SetField(openflow.IPDSCP(0)), openflow.Output(openflow.PortTable)}

// syn decides about a SYN with the mark. What is not placed goes by default forwarding.
func (s *Service) syn(at network.PortRef, headers *packet.Headers, m packet.MPTCP, hold func() (Held, error)) network.Verdict {
	select {
	case <-s.ready:
	default:
		return network.Continue
	}
	h, ok := match.HeaderOf(headers)
	if !m.Join || !ok {
		return s.leave(outcomePlain)
	}
	if f := s.flows.find(h); f != nil {
		return f.join(hold)
	}
	if !s.Network.IsEdge(at) {
		return s.leave(outcomeInside)
	}
	_, source := s.Network.Anchored(h.Src)
	_, destination := s.Network.Anchored(h.Dst)
	if source || destination {
		return s.leave(outcomeMoves)
	}
	// Rules for the answers lead to where the SYN has come in.
	from, known := s.Network.HostByMAC(h.EthSrc, h.VLAN)
	to, knownTo := s.Network.HostByMAC(h.EthDst, h.VLAN)
	switch {
	case !known || !knownTo || to.At.IsZero() || to.At == at:
		return s.leave(outcomeUnknown)
	case from.At != at:
		return s.leave(outcomeForged)
	}
	return s.begin(&subflow{id: identify(h), stored: stored{
		Header: h, Connection: connection{h.Dst, m.Token}, From: at, To: to.At, Since: time.Now(),
	}}, hold)
}

// leave has a SYN go by default forwarding.
func (s *Service) leave(why string) network.Verdict {
	s.metrics.joins.WithLabelValues(why).Inc()
	return network.Continue
}

// begin has a new subflow placed, unless its SYN has come twice meanwhile.
func (s *Service) begin(f *subflow, hold func() (Held, error)) network.Verdict {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	if there := s.flows.byHeader[f.Header]; there != nil {
		return there.join(hold)
	}
	if why := s.flows.full(f.From); why != "" {
		return s.leave(why)
	}
	if f.join(hold) != network.Stop {
		return s.leave(outcomeBusy)
	}
	f.changing.Lock()
	s.flows.addPlacing(f)
	if !s.tasks.Start(func(context.Context) { s.placer.place(f) }) {
		// The controller ends: held packets are forwarded when their time is over.
		f.changing.Unlock()
	}
	return network.Stop
}

// wholePacket asks a switch to send packets to the controller unabridged.
const wholePacket = 0xffff

// ask brings the rules for marked SYNs into every switch.
func (s *Service) ask(ctx context.Context) {
	refused := s.Rules.EverySwitch(ctx, "punt", func(d openflow.DatapathID) network.Program {
		return Punts(d, s.DSCP, way.SeesTCPFlags(s.Network, d))
	})
	for d, err := range refused {
		s.Log.Warn("further subflows that enter here are not placed", "switch", d, "error", err)
	}
}

// Punts are the rules that bring marked SYNs from one switch to the controller. A switch that
// does not match TCP's flags gives it all segments with the mark; hosts give it to SYNs alone.
func Punts(d openflow.DatapathID, dscp uint8, seesTCPFlags bool) (p network.Program) {
	for _, fields := range marked(dscp, seesTCPFlags) {
		p.Rules = append(p.Rules, network.Rule{
			Switch: d, Stage: network.StageRoute, Offset: rule.RouteSubflowAsk, Match: openflow.MustMatch(fields...),
			Leased: true, Actions: []openflow.Action{openflow.OutputController(wholePacket)},
		})
	}
	return p
}

// marked are the fields of SYNs with the mark, or of all segments with it.
func marked(dscp uint8, seesTCPFlags bool) (all [][]openflow.OXM) {
	for _, of := range []uint16{packet.TypeIPv4, packet.TypeIPv6} {
		fields := []openflow.OXM{openflow.EthType(of), openflow.IPDSCP(dscp), openflow.IPProto(packet.ProtoTCP)}
		if seesTCPFlags {
			fields = append(fields, openflow.TCPFlags(packet.SYN, packet.SYN|packet.ACK))
		}
		all = append(all, fields)
	}
	return all
}

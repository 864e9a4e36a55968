package subflows

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/match"
)

// Name implements network.Handler.
func (s *Service) Name() string { return "subflows" }

// HandlePacketIn handles SYNs that join a connection. It runs on the switch's goroutine and
// never blocks.
func (s *Service) HandlePacketIn(p *network.PacketIn) network.Verdict {
	h := &p.Headers
	if !s.Enabled || h.DSCP != s.DSCP || !h.IsIP() || h.IsFragment() || !h.IsSYN() {
		return network.Continue
	}
	at := network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}
	m := packet.MPTCPOf(h.TCPOptions(p.Data))
	if s.handleSYN(at, h, m, func() (Held, error) { return p.Hold(holdTimeout) }) == network.Stop {
		return network.Stop
	}
	s.countUnplaced(at)
	if m.Join && s.Network.IsEdge(at) && p.Output(unmarked) == nil {
		return network.Stop
	}
	return network.Continue
}

// unmarked holds the actions that remove the mark from a SYN and send it through the tables. With
// the mark, each switch on its path would punt it again.
var unmarked = []openflow.Action{openflow.SetField(openflow.IPDSCP(0)), openflow.Output(openflow.PortTable)}

// handleSYN decides about a SYN with the mark. SYNs that are not placed are left to default
// forwarding.
func (s *Service) handleSYN(at network.PortRef, headers *packet.Headers, m packet.MPTCP, hold func() (Held, error)) network.Verdict {
	select {
	case <-s.ready:
	default:
		return network.Continue
	}
	h, ok := match.HeaderOf(headers)
	if !m.Join || !ok {
		return s.pass(outcomePlain)
	}
	if f := s.flows.find(h); f != nil {
		return f.holdSYN(hold)
	}
	if !s.Network.IsEdge(at) {
		return s.pass(outcomeInside)
	}
	_, source := s.Network.Anchored(h.Src)
	_, destination := s.Network.Anchored(h.Dst)
	if source || destination {
		return s.pass(outcomeMoves)
	}
	// The rules for the answers forward to the port where the SYN came in, so the sender must be
	// connected there.
	from, known := s.Network.HostByMAC(h.EthSrc, h.VLAN)
	to, knownTo := s.Network.HostByMAC(h.EthDst, h.VLAN)
	switch {
	case !known || !knownTo || to.At.IsZero() || to.At == at:
		return s.pass(outcomeUnknown)
	case from.At != at:
		return s.pass(outcomeForged)
	}
	return s.begin(&subflow{id: identify(h), stored: stored{
		Header: h, Connection: connection{h.Dst, m.Token}, From: at, To: to.At, Since: time.Now(),
	}}, hold)
}

// pass counts a SYN that is left to default forwarding.
func (s *Service) pass(why string) network.Verdict {
	s.metrics.joins.WithLabelValues(why).Inc()
	return network.Continue
}

// begin starts the placement of a new subflow. If another call has started it meanwhile, because
// its SYN was repeated, begin only holds the SYN.
func (s *Service) begin(f *subflow, hold func() (Held, error)) network.Verdict {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	if there := s.flows.byHeader[f.Header]; there != nil {
		return there.holdSYN(hold)
	}
	if why := s.flows.refusal(f.From); why != "" {
		return s.pass(why)
	}
	if f.holdSYN(hold) != network.Stop {
		return s.pass(outcomeBusy)
	}
	f.changing.Lock()
	s.flows.addPlacing(f)
	if !s.tasks.Start(func(context.Context) { s.placer.place(f) }) {
		// The controller is stopping. Held packets are forwarded when their holdTimeout has passed.
		f.changing.Unlock()
	}
	return network.Stop
}

// wholePacket is the length in an output action that makes a switch send the whole packet to the
// controller.
const wholePacket = 0xffff

// installPunts writes the rules for marked SYNs to every switch.
func (s *Service) installPunts(ctx context.Context) {
	refused := s.Rules.EverySwitch(ctx, "punt", func(d openflow.DatapathID) network.Program {
		return Punts(d, s.DSCP, flowpath.MatchesTCPFlags(s.Network, d))
	})
	for d, err := range refused {
		s.Log.Warn("further subflows that enter here are not placed", "switch", d, "error", err)
	}
}

// Punts returns the rules that send marked SYNs from one switch to the controller. A switch
// that does not match TCP flags sends all segments with the mark; hosts mark SYNs only.
func Punts(d openflow.DatapathID, dscp uint8, seesTCPFlags bool) (p network.Program) {
	for _, fields := range marked(dscp, seesTCPFlags) {
		p.Rules = append(p.Rules, network.Rule{
			Switch: d, Stage: network.StageRoute, Offset: rule.RouteSubflowAsk, Match: openflow.MustMatch(fields...),
			Leased: true, Actions: []openflow.Action{openflow.OutputController(wholePacket)},
		})
	}
	return p
}

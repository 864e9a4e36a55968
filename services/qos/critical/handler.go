package critical

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

// Name implements network.Handler.
func (s *Service) Name() string { return "qos" }

// HandlePacketIn handles first packets of critical flows. It runs on the switch's goroutine
// and never blocks.
func (s *Service) HandlePacketIn(p *network.PacketIn) network.Verdict {
	at := network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}
	if s.handleCopy(at.Switch, p.Cookie, &p.Headers) {
		return network.Stop
	}
	return s.handlePacket(at, &p.Headers, func() (Held, error) { return p.Hold(holdTimeout) })
}

// handlePacket decides about a packet that a switch sent to the controller. Packets that cannot be
// placed are left to default forwarding. A packet of a flow that has been placed already is one of
// them: it was in flight when the rules were written.
func (s *Service) handlePacket(at network.PortRef, headers *packet.Headers, hold func() (Held, error)) network.Verdict {
	select {
	case <-s.ready:
	default:
		return network.Continue
	}
	definitions := s.Definitions.Items()
	if len(definitions) == 0 {
		return network.Continue
	}
	h, device, ok := s.plan.identify(headers, at.Switch)
	if !ok || !device.IsValid() && !s.Network.IsEdge(at) {
		return network.Continue
	}
	if f := s.flows.find(h); f != nil {
		return f.holdPacket(hold)
	}
	if _, virtual := s.Network.Virtual(h.Dst); virtual {
		return network.Continue // the address's service forwards it, and handles it later
	}
	// Definitions are searched without the lock, because this is done for every packet.
	exact := match.Of(at.Port, headers)
	i := slices.IndexFunc(definitions, func(x kit.Item[*Definition]) bool { return x.Value.selects(exact) })
	if i < 0 {
		return network.Continue
	}
	to, known := s.Network.HostByMAC(h.EthDst, h.VLAN)
	if device.IsValid() {
		to.At = at // the path of the mobile host determines where the flow leaves
	} else if !known && !h.Dst.IsValid() || to.At == at {
		return network.Continue
	}
	d := definitions[i].Value
	return s.begin(d, &flow{id: identify(h), stored: stored{
		Header: h, Definition: d.Name, Rate: uint64(d.Rate), Reverse: d.Reverse, Idle: d.Idle, Once: d.Once, HoldBack: d.ReverseRate != nil,
		From: at, To: to.At, Device: device, Since: time.Now(), placement: placement{State: StatePlacing},
	}}, hold)
}

// begin starts the placement of a new flow. If the packet belongs to a flow that another call has
// started meanwhile, it holds the packet for that flow.
func (s *Service) begin(d *Definition, f *flow, hold func() (Held, error)) network.Verdict {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	if there := s.flows.lookup(f.Header); there != nil {
		return there.holdPacket(hold)
	}
	if now, _ := s.Definitions.Item(d.Name); now.Value != d {
		return network.Continue // changed or removed meanwhile
	}
	if len(s.flows.byID) >= maxFlows || s.flows.placing >= maxPlacing || f.holdPacket(hold) != network.Stop {
		s.metrics.outcomes.WithLabelValues("refused").Inc()
		return network.Continue
	}
	f.ctx, f.cancel = context.WithCancel(s.tasks.Context())
	f.changing.Lock()
	s.flows.add(f)
	if !s.tasks.Start(func(context.Context) { s.placer.place(f) }) {
		f.changing.Unlock()
		s.flows.removeLocked(f)
		return network.Continue
	}
	s.flows.placing++
	return network.Stop
}

// handleCopy handles the copy of a TCP segment, and reports whether the packet was such a copy. The
// switch has then forwarded the segment itself.
func (s *Service) handleCopy(at openflow.DatapathID, cookie uint64, headers *packet.Headers) bool {
	if headers.TCPFlags&(packet.SYN|packet.FIN|packet.RST) == 0 {
		return false
	}
	h, _, ok := s.plan.identify(headers, at)
	f := s.flows.find(h)
	if !ok || f == nil || !slices.ContainsFunc(s.Rules.Rules(f.key()), func(r network.InstalledRule) bool {
		return uint64(r.Cookie) == cookie && isCopy(&r.Rule)
	}) {
		return false
	}
	switch before, now := f.noteSegment(h == f.Header, headers.TCPFlags); {
	case before == now:
	case before == closedBoth:
		s.start(func() { s.placer.reopen(f) })
	case now == closedBoth:
		s.start(func() { s.placer.releasePromise(f) })
	}
	return true
}

// isCopy reports whether a rule sends copies to the controller.
func isCopy(r *network.Rule) bool {
	return r.Stage == network.StageWay && r.Offset == rule.WayCriticalCopy || r.Stage == network.StageSelect && r.Offset == rule.SelectCriticalCopy
}

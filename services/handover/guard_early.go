package handover

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// isEarly reports whether a rule of another service sent the packet to the controller before the
// packet reached the table with the rules for devices. The rules for devices decide nevertheless.
func isEarly(p *network.PacketIn) bool {
	l := p.Switch.Layout()
	return l.Tables() && p.Table == l.Number(rule.TableService) && rule.Cookie(p.Cookie).Owner() != ownerHash
}

// earlyActions decides about an early packet as the rules for devices would. For a packet from or to a
// device it returns the actions of the matching rule. It returns no actions, with ours set, for a packet
// that those rules would drop: one with a device's address that does not come from the device, or one
// from a peering that no device's rule matches. For all other packets ours is false. The network calls
// it for packets that other services have not handled.
func (s *guards) earlyActions(at network.PortRef, h *packet.Headers) (out []openflow.Action, ours bool) {
	if !h.Has(packet.IPv4) && !h.Has(packet.IPv6) {
		return nil, false
	}
	if r, leads := s.ruleFor(at, h); leads {
		return r.Actions, true
	}
	v := s.view.Load()
	if v == nil {
		return nil, false
	}
	from := func(p netip.Prefix) bool { return p.Contains(h.Src) }
	border, ok := v.borders[at]
	return nil, ok && border.Peer != "" || slices.ContainsFunc(v.given, from)
}

// ruleFor returns the rule that matches a device's packet at a place, as the switch would choose
// it: rules in the switch come before those that are being written.
func (s *guards) ruleFor(at network.PortRef, h *packet.Headers) (best network.Rule, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ip := range []netip.Addr{h.Src, h.Dst} {
		d, known := s.registry.DeviceByIP(ip)
		m := s.placement.mobiles[d.ID]
		if !known || m == nil {
			continue
		}
		for _, r := range slices.Concat(m.rules, m.writing) {
			if r.Switch == at.Switch && (!found || r.Offset > best.Offset) && matches(r.Match, at.Port, h) {
				best, found = r, true
			}
		}
	}
	return best, found
}

// matches reports whether the match m of a device's rule fits a packet from the port in. It handles
// only the fields that such rules use.
func matches(m openflow.Match, in uint32, h *packet.Headers) bool {
	for o := range m.Fields() {
		var same bool
		switch o.Field {
		case openflow.FieldInPort:
			same = uint32(o.Uint()) == in
		case openflow.FieldEthType:
			same = o.Uint() == packet.TypeIPv4 && h.Has(packet.IPv4)
		case openflow.FieldEthSrc:
			same = o.MAC() == h.EthSrc
		case openflow.FieldEthDst:
			same = o.MAC() == h.EthDst
		case openflow.FieldIPv4Src:
			same = o.Addr() == h.Src
		case openflow.FieldIPv4Dst:
			same = o.Addr() == h.Dst
		}
		if !same {
			return false
		}
	}
	return true
}

// hasBorder reports whether a switch has a border port. Other services handle packets of devices at
// such switches only.
func (s *guards) hasBorder(d openflow.DatapathID) bool {
	return slices.ContainsFunc(s.settings.Borders, func(b Border) bool { return b.At.Switch == d })
}

// sendEarly sends a packet out by the actions that ActionsFor returned, or drops it if there are none.
func (s *guards) sendEarly(p *network.PacketIn, out []openflow.Action) network.Verdict {
	if len(out) == 0 {
		s.metrics.dropped.WithLabelValues("address").Inc()
	} else if err := p.Output(out); err != nil {
		s.log.Debug("packet of a device could not be sent on", "switch", p.Switch.DPID(), "error", err)
	}
	return network.Stop
}

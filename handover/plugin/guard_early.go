package plugin

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// isEarly says whether a switch has sent a packet up for another service, before it came to
// the table in which the rules for devices stand. They are nevertheless those that decide.
func isEarly(p *network.PacketIn) bool {
	l := p.Switch.Layout()
	return l.Tables() && p.Table == l.Number(rule.TableService) && rule.Cookie(p.Cookie).Owner() != ownerHash
}

// Led decides about such a packet as the rules would: what is a device's goes its way, out,
// and what has an address that belongs elsewhere, or comes over a peering and is no
// device's, goes nowhere. ours is false for all else. The network asks for what other services
// have left alone.
func (s *guards) Led(at network.PortRef, h *packet.Headers) (out []openflow.Action, ours bool) {
	if !h.Has(packet.IPv4) && !h.Has(packet.IPv6) {
		return nil, false
	}
	if r, leads := s.leading(at, h); leads {
		return r.Actions, true
	}
	v := s.view.Load()
	if v == nil {
		return nil, false
	}
	from := func(p netip.Prefix) bool { return p.Contains(h.Src) }
	border, is := v.borders[at]
	return nil, is && border.Peer != "" || slices.ContainsFunc(v.given, from)
}

// leading is the rule that a device's packet goes by at a place, as the switch would choose
// it: rules that are there come before those that are just written.
func (s *guards) leading(at network.PortRef, h *packet.Headers) (best network.Rule, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ip := range []netip.Addr{h.Src, h.Dst} {
		d, known := s.registry.DeviceByIP(ip)
		m := s.mobiles[d.ID]
		if !known || m == nil {
			continue
		}
		for _, r := range slices.Concat(m.rules, m.writing) {
			if r.Switch == at.Switch && (!found || r.Offset > best.Offset) && isFor(r.Match, at.Port, h) {
				best, found = r, true
			}
		}
	}
	return best, found
}

// isFor says whether a rule for devices is for a packet. They name nothing else than this.
func isFor(m openflow.Match, in uint32, h *packet.Headers) bool {
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

// border says whether a switch has a border port: there, and nowhere else, other services
// have something to do with devices' packets.
func (s *guards) border(d openflow.DatapathID) bool {
	return slices.ContainsFunc(s.settings.Borders, func(b Border) bool { return b.At.Switch == d })
}

// sendEarly has a packet go where Led says.
func (s *guards) sendEarly(p *network.PacketIn, out []openflow.Action) network.Verdict {
	if len(out) == 0 {
		s.metrics.dropped.WithLabelValues("address").Inc()
	} else if err := p.Output(out); err != nil {
		s.log.Debug("packet of a device could not be sent on", "switch", p.Switch.DPID(), "error", err)
	}
	return network.Stop
}

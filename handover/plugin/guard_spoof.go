package plugin

import (
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// spoofMeter is the number of the meter that such packets pass, spoofRate its
	// rate and its burst in packets: what one device sends until a switch goes by
	// the rules that it has confirmed, and little enough for the controller.
	spoofMeter = 0x3001
	spoofRate  = 2000
)

// holding is how a switch holds devices to their addresses.
type holding uint8

// What a switch refuses, it is not asked for again.
const (
	// asking: what comes from elsewhere goes to the controller, and what is cached of
	// a device that has left goes with its rules.
	asking holding = iota
	// askingStale is the same, but decisions may outlive the rules.
	askingStale
	// dropping: it has no meters.
	dropping
)

// spoofRules are for packets with an address of our pools from where nobody is
// known to have it. On a switch with meters they go to the controller, which ends
// them, but for those that an old decision of the switch has sent there: a device
// that returns to a place finds the decision of when it left. Elsewhere the rules
// drop, and cached decisions are not known of such switches.
//
// A rule that looks at ECN, and does the same as that below it, is there for Open
// vSwitch: a decision about a device's packets does not cover ECN, so it is deleted
// with the device's rules, and not turned into one to ask.
func spoofRules(d openflow.DatapathID, given []netip.Prefix, how holding) rule.Program {
	var p rule.Program
	for _, prefix := range given {
		fields := []openflow.OXM{openflow.EthType(packet.TypeIPv4), openflow.IPSrcPrefix(prefix)}
		r := network.Rule{Switch: d, Stage: network.StageGuard, Offset: rule.GuardSource, Match: openflow.MustMatch(fields...)}
		if how != dropping {
			r.Meter, r.Actions = spoofMeter, []openflow.Action{openflow.OutputController(wholePacket)}
		}
		p.Rules = append(p.Rules, r)
		if how == asking {
			r.Offset, r.Match = r.Offset+1, openflow.MustMatch(append(fields, openflow.IPECN(0))...)
			p.Rules = append(p.Rules, r)
		}
	}
	if how != dropping && len(p.Rules) > 0 {
		p.Meters = []network.Meter{{
			Switch: d, ID: spoofMeter, Flags: openflow.MeterFlagPktps | openflow.MeterFlagBurst,
			Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: spoofRate, Burst: spoofRate}},
		}}
	}
	return p
}

// spoofed says whether one of our rules sent a packet up for its address: the others
// send DHCP and ARP.
func (s *guards) spoofed(h *packet.Headers) bool {
	asks := h.Has(packet.UDP) && h.SrcPort == dhcpClientPort && h.DstPort == dhcpServerPort
	return h.Has(packet.IPv4) && !asks && !isAnswer(h)
}

// fromElsewhere decides about a packet that one of the spoof rules sent up. If the
// device has a rule there, the switch went by an old decision: the packet is sent
// through the tables again. It ends otherwise.
func (s *guards) fromElsewhere(at network.PortRef, src netip.Addr, resubmit func() error) network.Verdict {
	if s.leads(at, src) && resubmit() == nil {
		s.metrics.resubmitted.Inc()
		return network.Stop
	}
	s.metrics.dropped.WithLabelValues("address").Inc()
	return network.Stop
}

// leads says whether a device's packets are taken at a port, by rules that are
// there or being written.
func (s *guards) leads(at network.PortRef, ip netip.Addr) bool {
	d, known := s.registry.DeviceByIP(ip)
	if !known {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mobiles[d.ID]
	return m != nil && (takes(m.rules, at) || takes(m.writing, at))
}

// takes says whether one of a device's rules is for its packets from a port.
func takes(rules []network.Rule, at network.PortRef) bool {
	for i := range rules {
		r := &rules[i]
		if r.Switch != at.Switch || r.Stage != network.StageDevice || r.Offset != rule.DeviceUp {
			continue
		}
		for o := range r.Match.Fields() {
			if o.Field == openflow.FieldInPort && uint32(o.Uint()) == at.Port {
				return true
			}
		}
	}
	return false
}

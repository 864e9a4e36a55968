package handover

import (
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// spoofMeter is the number of the meter of the spoof rules. spoofRate is its rate, and its
	// burst in packets: as much as one device sends until a switch applies the rules that it has
	// confirmed, and little enough for the controller.
	spoofMeter = 0x3001
	spoofRate  = 2000
)

// spoofMode is how a switch treats packets with a device's address that come from elsewhere.
type spoofMode uint8

// The modes, from what every switch is asked for first to what the least capable accept.
const (
	// spoofToController: such packets go to the controller, and cached decisions about a device
	// that has left are deleted with its rules.
	spoofToController spoofMode = iota
	// spoofToControllerStale: the same, but cached decisions may outlive the rules.
	spoofToControllerStale
	// spoofDrop: such packets are dropped, because the switch has no meters.
	spoofDrop
)

// spoofRules returns the rules for packets with an address of our pools from a port where no
// device with it is known. On a switch with meters such packets go to the controller, which drops
// them unless an outdated cached decision of the switch has sent them: a device that returns to a
// place meets the decision from when it left. On other switches the rules drop; these are not
// known to cache decisions.
//
// The second rule, which matches ECN and does the same as the one below it, is there for Open
// vSwitch. A cached decision about a device's packets does not cover ECN. With this rule the
// decision is deleted together with the device's rules, and not turned into one that sends packets
// to the controller.
func spoofRules(d openflow.DatapathID, given []netip.Prefix, how spoofMode) rule.Program {
	var p rule.Program
	for _, prefix := range given {
		fields := []openflow.OXM{openflow.EthType(packet.TypeIPv4), openflow.IPSrcPrefix(prefix)}
		r := network.Rule{Switch: d, Stage: network.StageGuard, Offset: rule.GuardSource, Match: openflow.MustMatch(fields...)}
		if how != spoofDrop {
			r.Meter, r.Actions = spoofMeter, []openflow.Action{openflow.OutputController(wholePacket)}
		}
		p.Rules = append(p.Rules, r)
		if how == spoofToController {
			r.Offset, r.Match = r.Offset+1, openflow.MustMatch(append(fields, openflow.IPECN(0))...)
			p.Rules = append(p.Rules, r)
		}
	}
	if how != spoofDrop && len(p.Rules) > 0 {
		p.Meters = []network.Meter{{
			Switch: d, ID: spoofMeter, Flags: openflow.MeterFlagPktps | openflow.MeterFlagBurst,
			Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: spoofRate, Burst: spoofRate}},
		}}
	}
	return p
}

// isSpoofed reports whether a spoof rule sent a packet to the controller. The service's other
// rules send DHCP and ARP.
func (s *guards) isSpoofed(h *packet.Headers) bool {
	asks := h.Has(packet.UDP) && h.SrcPort == dhcpClientPort && h.DstPort == dhcpServerPort
	return h.Has(packet.IPv4) && !asks && !isServerMessage(h)
}

// handleSpoofed handles a packet that a spoof rule sent to the controller. If the device has a
// rule at the port, the switch used an outdated decision, and the packet is sent through the
// tables again. Otherwise it is dropped.
func (s *guards) handleSpoofed(at network.PortRef, src netip.Addr, resubmit func() error) network.Verdict {
	if s.acceptsFrom(at, src) && resubmit() == nil {
		s.metrics.resubmitted.Inc()
		return network.Stop
	}
	s.metrics.dropped.WithLabelValues("address").Inc()
	return network.Stop
}

// acceptsFrom reports whether the rules of a device accept its packets at a port. Rules that are
// being written count.
func (s *guards) acceptsFrom(at network.PortRef, ip netip.Addr) bool {
	d, known := s.registry.DeviceByIP(ip)
	if !known {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.placement.mobiles[d.ID]
	return m != nil && (acceptedBy(m.rules, at) || acceptedBy(m.writing, at))
}

// acceptedBy reports whether one of a device's rules accepts its packets from a port.
func acceptedBy(rules []network.Rule, at network.PortRef) bool {
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

package handover

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// keyForged begins the ledger keys of the rules against forged ARP.
const keyForged = "forged/"

// newForgers returns the violation of ports that send forged ARP.
func newForgers() *violation {
	return &violation{
		key: keyForged, event: "forged-arp", ports: map[network.PortRef]*violator{}, rules: forgedRules,
		begins: "ARP is forged at a port; it is dropped", ends: "ARP is no longer forged at a port", does: "forges ARP about",
	}
}

// isForged reports whether an ARP packet from an edge port that is no border port claims an
// address that its sender does not have: a gateway's, the DHCP server's, or another device's.
// Hosts believe requests as they believe replies, so both are checked.
func (s *guards) isForged(v *view, h *packet.Headers) bool {
	if slices.Contains(v.own, h.Src) {
		return true
	}
	d, ok := s.leaseHolder(h.Src)
	return ok && !(d.Has(h.EthSrc) && d.Has(h.ARPSHA))
}

// forgedRules returns the rules that drop forged ARP from a port. Requests with a device's address
// are not dropped: the controller tells forged ones from the device's own.
func forgedRules(v *view, at network.PortRef) []network.Rule {
	in := openflow.InPort(at.Port)
	matches := v.arp(openflow.ARPSPA, openflow.ARPOp(packet.ARPReply), in)
	for _, ip := range v.own {
		matches = append(matches, openflow.MustMatch(openflow.EthType(packet.TypeARP), openflow.ARPOp(packet.ARPRequest), openflow.ARPSPA(ip), in))
	}
	rules := make([]network.Rule, len(matches))
	for i, m := range matches {
		rules[i].Match = m
	}
	return rules
}

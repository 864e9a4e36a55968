package plugin

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// keyForged begins the keys of the rules against forged ARP in the ledger.
const keyForged = "forged/"

// newForgers looks for ports from which ARP is forged.
func newForgers() *offence {
	return &offence{
		key: keyForged, event: "forged-arp", ports: map[network.PortRef]*offender{}, rules: silenced,
		begins: "ARP is forged at a port; it is dropped", ends: "ARP is no longer forged at a port", does: "forges ARP about",
	}
}

// forged says whether an ARP packet from an edge port that is no border port claims an
// address that is not its sender's: that of a gateway or of the DHCP server, or that
// of a device that the sender is not. Requests are believed as replies are.
func (s *guards) forged(v *view, h *packet.Headers) bool {
	if slices.Contains(v.own, h.Src) {
		return true
	}
	d, ok := s.leased(h.Src)
	return ok && !(d.Has(h.EthSrc) && d.Has(h.ARPSHA))
}

// silenced are the rules that drop what a port forges, but for requests in the name
// of devices, which the controller tells from those of the devices themselves.
func silenced(v *view, at network.PortRef) []network.Rule {
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

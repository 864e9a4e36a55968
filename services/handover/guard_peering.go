package handover

import (
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// peeringGuards returns the rules that drop, on one switch, what another domain sends over a
// peering and what no device's rule matches. Default forwarding would flood it: copies that are
// still in flight when a device has gone, and whatever else a neighbour may send.
func peeringGuards(d openflow.DatapathID, borders []Border) []network.Rule {
	var rules []network.Rule
	for _, r := range borders {
		if r.Peer == "" || r.At.Switch != d {
			continue
		}
		for _, kind := range []uint16{packet.TypeIPv4, packet.TypeIPv6} {
			rules = append(rules, network.Rule{
				Switch: d, Stage: network.StageGuard, Offset: rule.GuardSource,
				Match: openflow.MustMatch(openflow.InPort(r.At.Port), openflow.EthType(kind)),
			})
		}
	}
	return rules
}

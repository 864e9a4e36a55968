package mobilityfirst

import (
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// PathRules returns the rules that forward frames between two Ethernet addresses: frames with the
// label forth along hops, and frames with the label back in the other direction. The last switch
// removes the label.
func PathRules(hops []network.Hop, forth, back uint16, from, to openflow.MAC) []network.Rule {
	return append(directionRules(hops, forth, from, to), directionRules(kit.Reversed(hops), back, to, from)...)
}

// directionRules returns the rules of one direction.
func directionRules(hops []network.Hop, label uint16, from, to openflow.MAC) []network.Rule {
	rules := make([]network.Rule, 0, len(hops))
	for i, hop := range hops {
		actions := []openflow.Action{openflow.Output(hop.Output())}
		if i == len(hops)-1 {
			actions = []openflow.Action{openflow.PopVLAN(), openflow.Output(hop.Output())}
		}
		rules = append(rules, network.Rule{
			Switch: hop.Switch, Stage: network.StageRoute, Offset: rule.RouteLabel, Match: labelMatch(hop.In, label, from, to), Actions: actions,
		})
	}
	return rules
}

// UnknownLabels returns the rules with which a switch drops frames whose label is not assigned at
// their port: the label's lease has ended, or the label belongs to another host.
func UnknownLabels(d openflow.DatapathID) network.Program {
	return network.Program{Rules: []network.Rule{{
		Switch: d, Stage: network.StageRoute, Offset: rule.RouteNoLabel, Match: openflow.MustMatch(openflow.EthType(frame.EtherType), anyLabel()),
	}}}
}

package mobilityfirst

import (
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// PathRules lead frames between two Ethernet addresses: those with the label forth along hops, those with
// the label back the other way. The last switch takes the label off.
func PathRules(hops []network.Hop, forth, back uint16, from, to openflow.MAC) []network.Rule {
	return append(oneWay(hops, forth, from, to), oneWay(kit.Reversed(hops), back, to, from)...)
}

// oneWay are the rules of one direction.
func oneWay(hops []network.Hop, label uint16, from, to openflow.MAC) []network.Rule {
	rules := make([]network.Rule, 0, len(hops))
	for i, hop := range hops {
		actions := []openflow.Action{openflow.Output(hop.Output())}
		if i == len(hops)-1 {
			actions = []openflow.Action{openflow.PopVLAN(), openflow.Output(hop.Output())}
		}
		rules = append(rules, network.Rule{
			Switch: hop.Switch, Stage: network.StageRoute, Offset: rule.RouteLabel, Match: ofLabel(hop.In, label, from, to), Actions: actions,
		})
	}
	return rules
}

// UnknownLabels has frames end at a switch that bear a label which is not there: it was used too long, or is somebody
// else's.
func UnknownLabels(d openflow.DatapathID) network.Program {
	return network.Program{Rules: []network.Rule{{
		Switch: d, Stage: network.StageRoute, Offset: rule.RouteNoLabel, Match: openflow.MustMatch(openflow.EthType(frame.EtherType), anyLabel()),
	}}}
}

package network

import (
	"fmt"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Rules lists every rule that is wanted on a switch, whoever wants it, the rules
// of default forwarding last. It is false if the switch is not connected.
func (n *Network) Rules(d openflow.DatapathID) ([]InstalledRule, bool) {
	s, ok := n.Switch(d)
	if !ok {
		return nil, false
	}
	out := n.ledger.SwitchRules(d)
	s.flows.Each(func(f rule.Flow, r ledger.FlowRule) {
		out = append(out, InstalledRule{
			Rule:   ledger.FlowToRule(d, f, r.Out, n.cfg.ForwardIdle),
			Cookie: r.Cookie, Owner: ownerForward, Name: flowName(f), Confirmed: r.Adopted,
		})
	})
	return out, true
}

// flowName is what a rule of default forwarding is called in lists and traces.
func flowName(f rule.Flow) string { return fmt.Sprintf("%v>%v", f.Src, f.Dst) }

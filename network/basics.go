package network

import (
	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Basics are the rules that every switch needs: a way from table to table, and up for packets
// that match nothing, and for probes of links.
func Basics(d openflow.DatapathID) Program {
	up := []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)}
	return Program{Rules: []Rule{
		{Switch: d, Stage: rule.StageMiss, Actions: up},
		{Switch: d, Stage: rule.StageMiss, Goto: rule.TableRoute},
		{Switch: d, Stage: rule.StageMiss, Goto: rule.TableService},
		{Switch: d, Stage: StageAdmit, Offset: rule.AdmitLLDP, Match: openflow.MustMatch(openflow.EthDst(discovery.Multicast), openflow.EthType(0x88cc)), Actions: up},
	}}
}

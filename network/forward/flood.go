package forward

import (
	"slices"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// anyGroup matches every group address, broadcast included.
func anyGroup() openflow.OXM {
	group := openflow.MAC{1}
	o := openflow.EthDst(group)
	o.Masked = true
	copy(o.Mask[:], group[:])
	return o
}

// BaseProgram returns the rules that do not belong to a flow.
//
// Group frames go between switches along the tree: what comes in by a tree port
// goes out by the other tree ports and the edge ports, what comes in by another
// port of a link is dropped. Those that come in by an edge port match none of
// these rules and go to the controller.
//
// ARP and neighbour advertisements that come in by an edge port go to the
// controller as well, even where a flow's rules would carry them: hosts tell
// their addresses by them. A switch that cannot match ICMPv6 types sends up ARP
// alone.
//
// What asks the controller is leased; below stand rules for when it is not there, and
// between the two AskProgram.
func (v *View) BaseProgram() rule.Program {
	var p rule.Program
	seen := map[topology.PortRef]bool{}
	for _, l := range v.Topology.Links {
		for _, at := range []topology.PortRef{l.From, l.To} {
			if !seen[at] {
				seen[at] = true
				p.Rules = append(p.Rules, v.floodRule(at))
			}
		}
	}
	for _, s := range v.Topology.Switches {
		edges := v.Edges.EdgePorts(s)
		for _, port := range edges {
			p.Rules = append(p.Rules, v.learnRules(topology.PortRef{Switch: s, Port: port})...)
		}
		p.Rules = append(p.Rules, v.openRules(s, edges)...)
	}
	return p
}

// maxOpen is how many edge ports a switch may have to be opened: each has a rule that
// names all others.
const maxOpen = 64

// AskProgram is above the rules for when no controller is there. It needs no tree: a switch
// has it as soon as there is a controller again, which can be told of hosts by then.
func AskProgram(s openflow.DatapathID) rule.Program {
	return rule.Program{Rules: []rule.Rule{{
		Switch: s, Stage: rule.StageRoute, Offset: rule.RouteAsk, Leased: true,
		Actions: []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)},
	}}}
}

// openRules are for when no controller is there: then the leases of what asks it end,
// and what has no rule goes everywhere along the tree. A switch with too many ports is
// not opened.
func (v *View) openRules(s openflow.DatapathID, edges []uint32) []rule.Rule {
	if len(edges) > maxOpen {
		return nil
	}
	var rules []rule.Rule
	for _, port := range slices.Concat(v.Topology.TreePorts(s), edges) {
		at := topology.PortRef{Switch: s, Port: port}
		if actions := v.floodActions(at); len(actions) > 0 {
			rules = append(rules, rule.Rule{
				Switch: s, Stage: rule.StageRoute, Offset: rule.RouteOpen, Match: openflow.MustMatch(openflow.InPort(port)), Actions: actions,
			})
		}
	}
	return rules
}

func (v *View) floodRule(at topology.PortRef) rule.Rule {
	r := rule.Rule{
		Switch: at.Switch, Stage: rule.StageRoute, Offset: rule.RouteFlood,
		Match: openflow.MustMatch(openflow.InPort(at.Port), anyGroup()),
	}
	if v.Topology.OnTree(at) {
		r.Actions = v.floodActions(at)
	}
	return r
}

func (v *View) learnRules(at topology.PortRef) []rule.Rule {
	in := openflow.InPort(at.Port)
	r := rule.Rule{
		Switch: at.Switch, Stage: rule.StageRoute, Offset: rule.RouteLearn, Leased: true,
		Match:   openflow.MustMatch(in, openflow.EthType(packet.TypeARP)),
		Actions: []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)},
	}
	if v.CanMatch != nil && !v.CanMatch(at.Switch, openflow.FieldICMPv6Type) {
		return []rule.Rule{r}
	}
	nd := r
	nd.Match = openflow.MustMatch(in, openflow.EthType(packet.TypeIPv6), openflow.IPProto(packet.ProtoICMPv6),
		openflow.ICMPv6Type(packet.NeighborAdvertisement))
	return []rule.Rule{r, nd}
}

// Shrink returns what two such programs have in common. Moving from one tree to
// another by way of it never closes a loop, whatever the order in which switches
// take the changes: until all have shrunk, every switch sends along the old tree
// or a part of it, and after that along a part of the new one.
func Shrink(old, new rule.Program) rule.Program {
	type place struct {
		s openflow.DatapathID
		k rule.Key
	}
	was := make(map[place]*rule.Rule, len(old.Rules))
	for i := range old.Rules {
		r := &old.Rules[i]
		was[place{r.Switch, r.Key()}] = r
	}
	var p rule.Program
	for _, r := range new.Rules {
		o, ok := was[place{r.Switch, r.Key()}]
		if !ok {
			continue
		}
		r.Actions = slices.DeleteFunc(slices.Clone(r.Actions), func(a openflow.Action) bool {
			return !slices.Contains(o.Actions, a)
		})
		p.Rules = append(p.Rules, r)
	}
	return p
}

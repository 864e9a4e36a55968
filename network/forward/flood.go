package forward

import (
	"slices"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// anyGroup returns a match field for every group address, including broadcast.
func anyGroup() openflow.OXM {
	group := openflow.MAC{1}
	o := openflow.EthDst(group)
	o.Masked = true
	copy(o.Mask[:], group[:])
	return o
}

// BaseProgram returns the rules that do not belong to a flow.
//
// Group frames go between switches along the tree. A frame that arrives at a tree port goes out
// of the other tree ports and the edge ports; a frame that arrives at another port of a link is
// dropped. A frame that arrives at an edge port matches none of these rules and goes to the
// controller.
//
// ARP and neighbour advertisements that arrive at an edge port go to the controller as well,
// even if a flow's rules would forward them, because they reveal hosts' addresses. A switch that
// cannot match ICMPv6 types sends up ARP only.
//
// Everything that arrives at a blocked port is dropped, except for probes of loops.
//
// Rules that send packets to the controller are leased: switches remove them when no controller
// renews them. Rules of lower priority are for the time without a controller. The priority of
// AskProgram's rule is between the two.
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
		for _, port := range v.Edges.BlockedPorts(s) {
			p.Rules = append(p.Rules, blockRules(topology.PortRef{Switch: s, Port: port})...)
		}
		p.Rules = append(p.Rules, v.offlineRules(s, edges)...)
	}
	return p
}

// maxOpenPorts is the largest number of edge ports of a switch that gets rules for the time
// without a controller: each port has a rule that names all others.
const maxOpenPorts = 64

// AskProgram returns the leased rule that sends packets to the controller. It comes before the
// rules for the time without a controller. It needs no spanning tree, so a switch gets it as
// soon as a controller is there, which can learn hosts from the packets.
func AskProgram(s openflow.DatapathID) rule.Program {
	return rule.Program{Rules: []rule.Rule{{
		Switch: s, Stage: rule.StageRoute, Offset: rule.RouteAsk, Leased: true,
		Actions: []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)},
	}}}
}

// offlineRules returns the rules for the time without a controller: then the leases of rules
// that send packets to it end, and a packet without other rules is flooded along the tree. A
// switch with too many ports gets none.
func (v *View) offlineRules(s openflow.DatapathID, edges []uint32) []rule.Rule {
	if len(edges) > maxOpenPorts {
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

func blockRules(at topology.PortRef) []rule.Rule {
	in := openflow.InPort(at.Port)
	return []rule.Rule{
		{Switch: at.Switch, Stage: rule.StageRoute, Offset: rule.RouteBlocked, Match: openflow.MustMatch(in)},
		{
			Switch: at.Switch, Stage: rule.StageRoute, Offset: rule.RouteBlockedProbe, Leased: true,
			Match:   openflow.MustMatch(in, openflow.EthDst(discovery.LoopMulticast), openflow.EthType(discovery.LoopType)),
			Actions: []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)},
		},
	}
}

// Shrink returns the rules and outputs that two base programs have in common. A change from one
// tree to another that first applies the result on all switches never closes a loop, in whatever
// order the switches apply it. Until all have applied the result, every switch forwards along the
// old tree or a part of it. After that, every switch forwards along a part of the new tree.
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

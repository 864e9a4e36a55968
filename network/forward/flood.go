package forward

import (
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// offsetFlood is the offset of these rules within the forwarding band.
const offsetFlood = 100

// anyGroup matches every group address, broadcast included.
func anyGroup() openflow.OXM {
	group := openflow.MAC{1}
	o := openflow.EthDst(group)
	o.Masked = true
	copy(o.Mask[:], group[:])
	return o
}

// FloodProgram returns the rules that carry group frames between switches: what
// comes in by a tree port goes out by the other tree ports and the edge ports,
// what comes in by another port of a link is dropped. Frames that come in by an
// edge port match none of them and go to the controller.
func (v *View) FloodProgram() rule.Program {
	var p rule.Program
	seen := map[topology.PortRef]bool{}
	add := func(at topology.PortRef) {
		if seen[at] {
			return
		}
		seen[at] = true
		r := rule.Rule{
			Switch: at.Switch, Band: rule.BandForwarding, Offset: offsetFlood,
			Match: openflow.MustMatch(openflow.InPort(at.Port), anyGroup()),
		}
		if v.Topology.OnTree(at) {
			r.Actions = v.floodActions(at)
		}
		p.Rules = append(p.Rules, r)
	}
	for _, l := range v.Topology.Links {
		add(l.From)
		add(l.To)
	}
	return p
}

// Shrink returns what two flood programs have in common. Moving from one tree to
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

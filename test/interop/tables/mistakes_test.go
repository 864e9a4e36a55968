package tables

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// mistake changes what reaches a switch. between are the pairs of services whose test has to
// notice.
type mistake struct {
	name    string
	make    func(*openflow.FlowMod)
	between []string
}

var mistakes = []mistake{
	{"no table goes on to the next", without(openflow.InstructionGotoTable), nil}, // every pair
	{"sessions after classes and critical flows", swap(rule.StageRewrite, 0, rule.StageWay, 0), []string{"sos and class", "sos and critical"}},
	{"channels after what else goes to their address", swap(rule.StageRewrite, rule.RewriteChannel, rule.StageRewrite, rule.RewriteChannelGuard), []string{"channel and forwarding", "channel and sos", "channel and device"}},
	{"channels before devices in one table", swap(rule.StageRewrite, 0, rule.StageDevice, 0), []string{"channel and device"}},
	{"channels after critical flows", swap(rule.StageRewrite, 0, rule.StageWay, 0), []string{"channel and critical"}},
	{"first packets after classes and critical flows", swap(rule.StageSelect, 0, rule.StageWay, 0), []string{"sos and class", "sos and critical"}},
	{"sessions before devices in one table", swap(rule.StageRewrite, 0, rule.StageDevice, 0), []string{"sos and device"}},
	{"first packets before devices in one table", swap(rule.StageSelect, 0, rule.StageDevice, 0), []string{"sos and device"}},
	{"first packets before sessions", swap(rule.StageSelect, 0, rule.StageRewrite, 0), []string{"sos and forwarding", "sos and class", "sos and critical", "sos and device"}},
	{"critical flows before classes", swap(rule.StageWay, rule.WayClass, rule.StageWay, 0), []string{"class and critical"}},
	{"critical packets before flows that are placed", swap(rule.StageWay, rule.WayCriticalFlow, rule.StageWay, 0), []string{"critical and forwarding", "sos and critical", "class and critical"}},
	{"ways that are promised before devices", swap(rule.StageDevice, 0, rule.StageWay, 0), []string{"class and device", "critical and device"}},
	{"other people's addresses before devices", swap(rule.StageDevice, 0, rule.StageGuard, 0), []string{"device and forwarding", "sos and device", "class and device", "critical and device"}},
	{"devices before what the controller has", swap(rule.StageDevice, 0, rule.StageAdmit, 0), []string{"device and forwarding"}},
	{"the ordinary way before those that are promised", swap(rule.StageRoute, 0, rule.StageWay, 0), []string{"class and forwarding", "critical and forwarding"}},
	{"the ordinary way before devices", swap(rule.StageRoute, 0, rule.StageDevice, 0), []string{"device and forwarding"}},
	{"the ordinary way before that between agents", swap(rule.StageRoute, rule.RouteAgents, rule.StageRoute, 0), []string{"sos and forwarding"}},
	{"further subflows before ways that are promised", swap(rule.StageRoute, rule.RouteSubflowAsk, rule.StageWay, 0), []string{"class and subflow", "critical and subflow"}},
	{"the ordinary way before further subflows", swap(rule.StageRoute, rule.RouteSubflowAsk, rule.StageRoute, 0), []string{"subflow and forwarding"}},
	{"SYNs with the mark before subflows that are placed", swap(rule.StageRoute, rule.RouteSubflow, rule.StageRoute, rule.RouteSubflowAsk), []string{"subflow and forwarding"}},
	{"paths between names before classes", swap(rule.StageRoute, rule.RouteNoLabel, rule.StageWay, 0), []string{"names and class"}},
	{"the ordinary way before paths between names", swap(rule.StageRoute, rule.RouteNoLabel, rule.StageRoute, 0), []string{"names and forwarding"}},
	{"labels that are not there before those that are", swap(rule.StageRoute, rule.RouteLabel, rule.StageRoute, rule.RouteNoLabel), []string{"names and forwarding"}},
	{"no queues in channels", withoutActions(openflow.ActionSetQueue), []string{"channel and forwarding"}},
	{"no queues", withoutActions(openflow.ActionSetQueue), []string{"class and forwarding", "sos and class", "class and critical", "class and device"}},
	{"marks that nothing comes after", func(m *openflow.FlowMod) {
		if stage, _, _ := rule.OfPriority(m.Priority); stage == rule.StageClassify {
			without(openflow.InstructionGotoTable)(m)
		}
	}, []string{"class and forwarding", "sos and class", "class and critical", "class and device"}},
	{"nothing is rewritten", withoutActions(openflow.ActionSetField), []string{"sos and forwarding", "sos and class", "sos and critical", "sos and device", "device and forwarding"}},
}

// narrowed are the offsets of a stage within a hundred or two, in the same order: so much room
// there is in each.
func narrowed(offset uint16) uint16 {
	switch {
	case offset < 100:
		return offset
	case offset < 1000:
		return 100 + (offset-100)/10
	}
	return min(190+(offset-1000), 400)
}

// swap exchanges two kinds of rules: of a stage, from an offset on.
func swap(a rule.Stage, fromA uint16, b rule.Stage, fromB uint16) func(*openflow.FlowMod) {
	at := func(s rule.Stage, offset uint16) uint16 { return s.Base() + offset }
	return func(m *openflow.FlowMod) {
		stage, offset, ok := rule.OfPriority(m.Priority)
		switch {
		case !ok:
		case stage == a && offset >= fromA:
			m.Priority = at(b, fromB) + narrowed(offset-fromA)
		case stage == b && offset >= fromB:
			m.Priority = at(a, fromA) + narrowed(offset-fromB)
		}
	}
}

func without(kind openflow.InstructionType) func(*openflow.FlowMod) {
	return func(m *openflow.FlowMod) {
		m.Instructions = slices.DeleteFunc(slices.Clone(m.Instructions), func(in openflow.Instruction) bool { return in.Type == kind })
	}
}

func withoutActions(kind openflow.ActionType) func(*openflow.FlowMod) {
	return func(m *openflow.FlowMod) {
		m.Instructions = slices.Clone(m.Instructions)
		for i := range m.Instructions {
			in := &m.Instructions[i]
			in.Actions = slices.DeleteFunc(slices.Clone(in.Actions), func(a openflow.Action) bool { return a.Type == kind })
		}
	}
}

// TestMistakesAreNoticed makes mistakes on the way to the switches: each pair's test notices
// those that concern it.
func TestMistakesAreNoticed(t *testing.T) {
	const most = 100 // worlds
	for _, p := range pairs() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for _, m := range mistakes {
				if m.between != nil && !slices.Contains(m.between, p.name) {
					continue
				}
				right := rapid.Custom(func(t *rapid.T) *world { return p.draw(t, nil) })
				wrong := rapid.Custom(func(t *rapid.T) *world { return p.draw(t, m.make) })
				seed := 0
				for seed < most && wrong.Example(seed).sendMany(uint64(seed), decided{}) == nil {
					seed++
				}
				if seed == most {
					t.Errorf("%s: not noticed in %d worlds", m.name, most)
				} else if err := right.Example(seed).sendMany(uint64(seed), decided{}); err != nil {
					t.Errorf("without a mistake: %v", err)
				}
				t.Logf("%s: noticed in world %d", m.name, seed+1)
			}
		})
	}
}

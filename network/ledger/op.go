package ledger

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Op is one message to one switch.
type Op struct {
	Switch  openflow.DatapathID
	Message openflow.Message
	// Rule is the rule concerned, nil for groups and meters.
	Rule *rule.Rule
}

func writeRule(e *Entry, command uint8) Op {
	r := &e.Rule
	m := openflow.NewFlowMod(command, r.Table, r.Priority(), r.Match, Instructions(r)...)
	m.Cookie = uint64(e.Cookie)
	m.IdleTimeout, m.HardTimeout = seconds(r.Idle), seconds(r.HardTimeout())
	m.Flags = flags(r)
	return Op{Switch: r.Switch, Message: m, Rule: r}
}

func deleteRule(sw openflow.DatapathID, k rule.Key, c rule.Cookie, r *rule.Rule) Op {
	m := openflow.NewFlowMod(openflow.FlowDeleteStrict, k.Table, k.Priority, k.Match)
	m.Cookie, m.CookieMask = uint64(c), ^uint64(0)
	return Op{Switch: sw, Message: m, Rule: r}
}

// writeReported writes a rule as a switch has listed it.
func writeReported(r *Reported) Op {
	m := openflow.NewFlowMod(openflow.FlowAdd, r.Table, r.Priority, r.Match, r.Instructions...)
	m.Cookie, m.IdleTimeout, m.HardTimeout, m.Flags = uint64(r.Cookie), r.Idle, r.Hard, r.Flags
	return Op{Switch: r.Switch, Message: m}
}

func writeGroup(g *rule.Group, command uint16) Op {
	m := &openflow.GroupMod{Command: command, Type: g.Type, Group: g.ID, Buckets: g.Buckets}
	if command == openflow.GroupDelete {
		m.Buckets = nil
	}
	return Op{Switch: g.Switch, Message: m}
}

func writeMeter(m *rule.Meter, command uint16) Op {
	mod := &openflow.MeterMod{Command: command, Flags: m.Flags, Meter: m.ID, Bands: m.Bands}
	if command == openflow.MeterDelete {
		mod.Bands, mod.Flags = nil, 0
	}
	return Op{Switch: m.Switch, Message: mod}
}

// Instructions are what the rule does, in the order of the specification.
func Instructions(r *rule.Rule) []openflow.Instruction {
	var out []openflow.Instruction
	if r.Meter != 0 {
		out = append(out, openflow.Meter(r.Meter))
	}
	if len(r.Actions) > 0 {
		out = append(out, openflow.ApplyActions(r.Actions...))
	}
	if r.Goto != 0 {
		out = append(out, openflow.GotoTable(r.Goto))
	}
	return out
}

// flags asks for a notice whenever the switch itself may end the rule, whether
// or not the owner wants to know: the ledger does.
func flags(r *rule.Rule) uint16 {
	if r.NotifyRemoved || r.Idle > 0 || r.Hard > 0 {
		return openflow.FlagSendFlowRemoved
	}
	return 0
}

// seconds rounds a timeout up to whole seconds: a short one must not become none.
func seconds(d time.Duration) uint16 {
	return uint16(min((d+time.Second-1)/time.Second, 0xffff))
}

// sameEffect reports whether two rules at one place do the same.
func sameEffect(a, b *rule.Rule) bool {
	return a.Meter == b.Meter && a.Goto == b.Goto && slices.Equal(a.Actions, b.Actions)
}

// sameRule reports whether two rules at one place are the same on the wire and
// to their owner.
func sameRule(a, b *rule.Rule) bool {
	return sameEffect(a, b) && a.NotifyRemoved == b.NotifyRemoved && seconds(a.Idle) == seconds(b.Idle) && seconds(a.HardTimeout()) == seconds(b.HardTimeout())
}

func sameGroup(a, b *rule.Group) bool {
	return a.Type == b.Type && slices.EqualFunc(a.Buckets, b.Buckets, func(x, y openflow.Bucket) bool {
		return x.Weight == y.Weight && x.WatchPort == y.WatchPort && x.WatchGroup == y.WatchGroup && slices.Equal(x.Actions, y.Actions)
	})
}

func sameMeter(a, b *rule.Meter) bool { return a.Flags == b.Flags && slices.Equal(a.Bands, b.Bands) }

// Reported is a rule as a switch lists it.
type Reported struct {
	Switch openflow.DatapathID
	rule.Key
	Cookie         rule.Cookie
	Idle, Hard     uint16
	Flags          uint16
	Instructions   []openflow.Instruction
	Packets, Bytes uint64
}

// effect reads the instructions of a reported rule. It is false for what no
// owner can declare.
func (r *Reported) effect() (rule.Rule, bool) {
	out := rule.Rule{Table: r.Table, Match: r.Match}
	for i := range r.Instructions {
		switch in := &r.Instructions[i]; in.Type {
		case openflow.InstructionMeter:
			out.Meter = in.Meter
		case openflow.InstructionApplyActions:
			out.Actions = in.Actions
		case openflow.InstructionGotoTable:
			out.Goto = in.Table
		default:
			return out, false
		}
	}
	return out, true
}

// equals reports whether what the switch lists is the wanted rule.
func (r *Reported) equals(want *rule.Rule) bool {
	have, ok := r.effect()
	return ok && sameEffect(&have, want) && r.Idle == seconds(want.Idle) && r.Hard == seconds(want.HardTimeout()) &&
		r.Flags&openflow.FlagSendFlowRemoved == flags(want)
}

// rule gives the reported rule as its owner would have declared it.
func (r *Reported) rule() (rule.Rule, bool) {
	out, ok := r.effect()
	stage, offset, inStage := rule.OfPriority(r.Priority)
	out.Switch, out.Stage, out.Offset = r.Switch, stage, offset
	out.Idle, out.Hard = time.Duration(r.Idle)*time.Second, time.Duration(r.Hard)*time.Second
	out.NotifyRemoved = r.Flags&openflow.FlagSendFlowRemoved != 0
	return out, ok && inStage
}

// Flow reads the rule as one of default forwarding. It is false if it is not,
// or not as default forwarding with this idle timeout writes it.
func (r *Reported) Flow(idle time.Duration) (rule.Flow, FlowRule, bool) {
	f, ok := rule.FlowOf(r.Match)
	have, plain := r.effect()
	if !ok || !plain || len(have.Actions) != 1 || have.Actions[0].Type != openflow.ActionOutput {
		return rule.Flow{}, FlowRule{}, false
	}
	out := have.Actions[0].Arg
	want := FlowToRule(r.Switch, f, out, idle)
	if r.Table != want.Table || r.Priority != want.Priority() || !r.equals(&want) {
		return rule.Flow{}, FlowRule{}, false
	}
	return f, FlowRule{Cookie: r.Cookie, Out: out}, true
}

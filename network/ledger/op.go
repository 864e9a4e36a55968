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
	// Rule is the rule that the message is about, nil for groups and meters.
	Rule *rule.Rule
	// Layout is the layout of the switch for which a rule's message was made.
	Layout rule.Layout
}

// Fits reports whether the operation suits a switch with layout l. An operation that does not suit
// it was planned before the switch connected again, and reconciliation does its work instead.
func (op *Op) Fits(l rule.Layout) bool {
	_, about := op.Message.(*openflow.FlowMod)
	return !about || op.Layout == l
}

// Depth orders the operations that write to one switch; higher depths are sent first. Groups and
// meters come before the rules that need them, and rules of a later table before the rules that
// lead to that table. Deletions go in the opposite order.
func (op *Op) Depth() int {
	if m, about := op.Message.(*openflow.FlowMod); about {
		return int(m.Table)
	}
	return 1 << 8
}

// writeReported returns the operation that writes a rule as a switch has listed it.
func writeReported(l rule.Layout, r *Reported) Op {
	m := openflow.NewFlowMod(openflow.FlowAdd, r.Table, r.Priority, r.Match, r.Instructions...)
	m.Cookie, m.IdleTimeout, m.HardTimeout, m.Flags = uint64(r.Cookie), r.Idle, r.Hard, r.Flags
	return Op{Switch: r.Switch, Message: m, Layout: l}
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

// Instructions returns the instructions of a rule in a switch with layout l, in the order of the
// specification.
func Instructions(l rule.Layout, r *rule.Rule) []openflow.Instruction {
	var out []openflow.Instruction
	if r.Meter != 0 {
		out = append(out, openflow.Meter(r.Meter))
	}
	if len(r.Actions) > 0 {
		out = append(out, openflow.ApplyActions(r.Actions...))
	}
	if next := l.Next(r); next != 0 {
		out = append(out, openflow.GotoTable(next))
	}
	return out
}

// flags holds the flags of all flow-mods. The switch is asked for a notice when it removes the
// rule: one that times out has to leave the ledger, and one that another program deletes has to
// be written again.
const flags = openflow.FlagSendFlowRemoved

// seconds rounds a timeout up to whole seconds, because zero would mean no timeout.
func seconds(d time.Duration) uint16 {
	return uint16(min((d+time.Second-1)/time.Second, 0xffff))
}

// sameEffect reports whether two rules with the same key do the same to packets.
func sameEffect(a, b *rule.Rule) bool {
	return a.Meter == b.Meter && a.Goto == b.Goto && slices.Equal(a.Actions, b.Actions)
}

// sameRule reports whether two rules with the same key are the same on the wire and to their
// owner.
func sameRule(a, b *rule.Rule) bool {
	return sameEffect(a, b) && notifies(a) == notifies(b) && seconds(a.Idle) == seconds(b.Idle) && seconds(a.HardTimeout()) == seconds(b.HardTimeout())
}

// notifies reports whether the owner is told when the rule times out.
func notifies(r *rule.Rule) bool { return r.NotifyRemoved && r.Expires() }

func sameGroup(a, b *rule.Group) bool {
	return a.Type == b.Type && slices.EqualFunc(a.Buckets, b.Buckets, func(x, y openflow.Bucket) bool {
		return x.Weight == y.Weight && x.WatchPort == y.WatchPort && x.WatchGroup == y.WatchGroup && slices.Equal(x.Actions, y.Actions)
	})
}

// sameMeter reports whether two meters do the same. The burst sizes count only with the flag for
// them: without it Open vSwitch lists sizes of its own.
func sameMeter(a, b *rule.Meter) bool {
	return a.Flags == b.Flags && slices.EqualFunc(a.Bands, b.Bands, func(x, y openflow.MeterBand) bool {
		if a.Flags&openflow.MeterFlagBurst == 0 {
			x.Burst, y.Burst = 0, 0
		}
		return x == y
	})
}

// Reported is a rule as a switch lists it.
type Reported struct {
	Switch openflow.DatapathID
	rule.Slot
	Cookie         rule.Cookie
	Idle, Hard     uint16
	Flags          uint16
	Instructions   []openflow.Instruction
	Packets, Bytes uint64
}

// effect reads the instructions of a reported rule. It returns false for instructions that no
// owner can declare.
func (r *Reported) effect(l rule.Layout) (rule.Rule, bool) {
	out := rule.Rule{Match: r.Match}
	for i := range r.Instructions {
		switch in := &r.Instructions[i]; in.Type {
		case openflow.InstructionMeter:
			out.Meter = in.Meter
		case openflow.InstructionApplyActions:
			out.Actions = in.Actions
		case openflow.InstructionGotoTable:
			next, ok := l.Table(in.Table)
			if !ok || !l.Tables() {
				return out, false
			}
			out.Goto = next
		default:
			return out, false
		}
	}
	return out, true
}

// equals reports whether the reported rule is the wanted one.
func (r *Reported) equals(l rule.Layout, want *rule.Rule) bool {
	have, ok := r.effect(l)
	return ok && have.Meter == want.Meter && have.Goto == want.Next() && slices.Equal(have.Actions, want.Actions) && r.Idle == seconds(want.Idle) && r.Hard == seconds(want.HardTimeout()) &&
		r.Flags&flags == flags
}

// toRule returns the reported rule as its owner would have declared it, and whether an owner can
// declare such a rule.
func (r *Reported) toRule(l rule.Layout) (rule.Rule, bool) {
	out, ok := r.effect(l)
	stage, offset, inStage := rule.OfPriority(r.Priority)
	if stage == rule.StageClassify {
		out.Goto = 0 // implied by the stage
	}
	out.Switch, out.Stage, out.Offset = r.Switch, stage, offset
	out.Idle, out.Hard = time.Duration(r.Idle)*time.Second, time.Duration(r.Hard)*time.Second
	out.NotifyRemoved = out.Expires()
	return out, ok && inStage
}

// Flow returns the rule as a flow of default forwarding. It returns false if default forwarding
// with this idle timeout does not write such a rule.
func (r *Reported) Flow(l rule.Layout, idle time.Duration) (rule.Flow, FlowRule, bool) {
	f, ok := rule.FlowOf(r.Match)
	have, plain := r.effect(l)
	if !ok || !plain || len(have.Actions) != 1 || have.Actions[0].Type != openflow.ActionOutput {
		return rule.Flow{}, FlowRule{}, false
	}
	out := have.Actions[0].Arg
	want := FlowToRule(r.Switch, f, out, idle)
	if r.Slot != l.Slot(want.Key()) || !r.equals(l, &want) {
		return rule.Flow{}, FlowRule{}, false
	}
	return f, FlowRule{Cookie: r.Cookie, Out: out}, true
}

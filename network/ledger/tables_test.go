package ledger

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// bench is a ledger and the flow table of one switch.
type bench struct {
	*testing.T
	l     *Ledger
	table *fake.FlowTable
}

func newBench(t *testing.T, layout rule.Layout) (*bench, *Owner, *Owner) {
	b := &bench{t, New(1), fake.NewFlowTable(nil)}
	core, _ := b.l.AddOwner("core", false)
	b.l.Ready(core)
	o, err := b.l.AddOwner("svc", false)
	if err != nil {
		t.Fatal(err)
	}
	b.l.Reading(1, layout)
	b.apply(core, "basics",
		rule.Rule{Switch: 1, Stage: rule.StageMiss, Actions: outTo(openflow.PortController)},
		rule.Rule{Switch: 1, Stage: rule.StageMiss, Goto: rule.TableRoute},
		rule.Rule{Switch: 1, Stage: rule.StageMiss, Goto: rule.TableService})
	return b, core, o
}

func outTo(port uint32) []openflow.Action { return []openflow.Action{openflow.Output(port)} }

func (b *bench) apply(o *Owner, key string, rules ...rule.Rule) *Change {
	b.Helper()
	c, err := b.l.Plan(o, key, rule.Program{Rules: rules})
	if err != nil {
		b.Fatal(err)
	}
	b.send(c.Writes)
	b.send(c.Deletes)
	c.Confirm()
	return c
}

func (b *bench) send(ops []Op) {
	b.Helper()
	for _, op := range ops {
		if _, err := b.table.Flow(op.Message.(*openflow.FlowMod)); err != nil {
			b.Fatal(err)
		}
	}
}

// reconnect connects the switch again with the rules that it has, and another layout. It calls
// look after each message.
func (b *bench) reconnect(layout rule.Layout, look func()) {
	b.Helper()
	over := b.l.Reading(1, layout)
	defer over()
	var f Found
	for _, s := range b.table.Stats(openflow.AllFlows()) {
		f.Rules = append(f.Rules, Reported{
			Slot:   rule.Slot{Table: s.Table, Priority: s.Priority, Match: s.Match},
			Cookie: rule.Cookie(s.Cookie), Idle: s.IdleTimeout, Hard: s.HardTimeout, Flags: s.Flags, Instructions: s.Instructions,
		})
	}
	for _, op := range b.l.Reconcile(1, f).Ops {
		b.send([]Op{op})
		look()
	}
	b.l.Reconciled(1, nil)
}

// entries returns the entries of the flow table in short form.
func (b *bench) entries() (out []string) {
	for _, e := range b.table.Entries() {
		s := fmt.Sprintf("%d/%d", e.Table, e.Priority)
		for _, in := range e.Instructions {
			switch in.Type {
			case openflow.InstructionApplyActions:
				for _, a := range in.Actions {
					s += fmt.Sprint(" ", a)
				}
			case openflow.InstructionGotoTable:
				s += fmt.Sprint(" goto ", in.Table)
			}
		}
		out = append(out, s)
	}
	return out
}

func (b *bench) want(what string, entries ...string) {
	b.Helper()
	if got := b.entries(); !slices.Equal(got, entries) {
		b.Errorf("%s:\n got %q\nwant %q", what, got, entries)
	}
}

func three(t *testing.T) rule.Layout {
	t.Helper()
	l, err := rule.NewLayout(0, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var to80 = openflow.MustMatch(openflow.EthType(0x800), openflow.IPProto(6), openflow.TCPDst(80))

// class returns the rule of a path and the mark that belongs to it.
func class(queue, port uint32) []rule.Rule {
	way := rule.Rule{Switch: 1, Stage: rule.StageWay, Offset: rule.WayClass, Match: to80, Actions: outTo(port)}
	mark := way
	mark.Stage, mark.Actions = rule.StageClassify, []openflow.Action{openflow.SetQueue(queue)}
	return []rule.Rule{way, mark}
}

// TestTables checks that a rule is in the table of its stage, and that with several tables a
// mark is a rule of its own.
func TestTables(t *testing.T) {
	b, _, o := newBench(t, three(t))
	c := b.apply(o, "class", class(7, 3)...)
	b.want("a class", "0/61000 set_queue:7 goto 1", "0/0 goto 1", "1/0 goto 2", "2/21000 output:3", "2/0 CONTROLLER:65535")
	if r := b.l.Rules(o, "class"); len(c.Writes) != 2 || len(r) != 2 {
		t.Errorf("%d operations, rules %v", len(c.Writes), r)
	}
	if c := b.apply(o, "class", class(8, 3)...); len(c.Writes) != 1 {
		t.Errorf("another queue takes %d operations", len(c.Writes))
	}
	b.want("another queue", "0/61000 set_queue:8 goto 1", "0/0 goto 1", "1/0 goto 2", "2/21000 output:3", "2/0 CONTROLLER:65535")
	b.apply(o, "class")
	b.want("no class", "0/0 goto 1", "1/0 goto 2", "2/0 CONTROLLER:65535")
}

// TestOneTable checks that with one table a mark is part of its path's rule, whichever of the
// two changes.
func TestOneTable(t *testing.T) {
	b, _, o := newBench(t, rule.OneTable)
	queued, plain := class(7, 3), class(7, 3)[:1]
	b.apply(o, "class", queued...)
	b.want("a class", "0/21000 set_queue:7 output:3", "0/0 CONTROLLER:65535")
	if r := b.l.Rules(o, "class"); len(r) != 1 || len(r[0].Actions) != 2 || len(b.l.SwitchRules(1)) != 2 {
		t.Errorf("the ledger tells of what the switch does not have: %+v", r)
	}
	for _, step := range []struct {
		what  string
		rules []rule.Rule
		want  string
	}{
		{"another queue", class(8, 3), "0/21000 set_queue:8 output:3"},
		{"another way", class(8, 4), "0/21000 set_queue:8 output:4"},
		{"no mark", plain, "0/21000 output:3"},
		{"a mark again", queued, "0/21000 set_queue:7 output:3"},
	} {
		b.apply(o, "class", step.rules...)
		b.want(step.what, step.want, "0/0 CONTROLLER:65535")
	}
	c, err := b.l.Plan(o, "class", rule.Program{Rules: plain})
	if err != nil {
		t.Fatal(err)
	}
	b.send(c.Writes)
	b.send(c.Rollback())
	b.want("rolled back", "0/21000 set_queue:7 output:3", "0/0 CONTROLLER:65535")
	b.apply(o, "class")
	b.want("no class", "0/0 CONTROLLER:65535")
}

// TestMarksOfOthers checks that a path does not get another owner's mark.
func TestMarksOfOthers(t *testing.T) {
	b, core, o := newBench(t, rule.OneTable)
	b.apply(o, "way", class(7, 3)[0])
	b.apply(core, "mark", class(9, 3)[1])
	b.want("of two owners", "0/21000 output:3", "0/0 CONTROLLER:65535")
}

// TestTablesChange connects a switch again with other tables, and checks that in between each
// packet goes where it went before or goes afterwards.
func TestTablesChange(t *testing.T) {
	session := rule.Rule{Switch: 1, Stage: rule.StageRewrite, Match: to80, Actions: outTo(5)}
	plain := rule.Rule{Switch: 1, Stage: rule.StageRoute, Offset: rule.RouteFlow, Match: openflow.MustMatch(openflow.InPort(1)), Actions: outTo(2)}
	far, _ := rule.NewLayout(0, 4, 9)
	layouts := map[string]rule.Layout{"one": rule.OneTable, "three": three(t), "far": far}
	entries := map[string][]string{}
	for name, l := range layouts {
		b, _, o := newBench(t, l)
		b.l.Ready(o)
		b.apply(o, "k", append(class(7, 3), session, plain)...)
		entries[name] = b.entries()
	}
	to := fake.NewPacket(openflow.NoVLAN(), openflow.EthType(0x800), openflow.IPProto(6), openflow.TCPDst(80))
	other := fake.NewPacket(openflow.NoVLAN(), openflow.EthType(0x800), openflow.IPProto(6), openflow.TCPDst(81))
	for from, l := range layouts {
		for name, next := range layouts {
			b, _, o := newBench(t, l)
			b.l.Ready(o)
			b.apply(o, "k", append(class(7, 3), session, plain)...)
			b.reconnect(next, func() {
				if got := b.table.Send(1, to).Ports(); !slices.Equal(got, []uint32{5}) {
					t.Errorf("from %s to %s: a session's packet goes to %v", from, name, got)
				}
				if got := b.table.Send(1, other).Ports(); !slices.Equal(got, []uint32{2}) {
					t.Errorf("from %s to %s: another packet goes to %v", from, name, got)
				}
			})
			if got := b.entries(); !slices.Equal(got, entries[name]) {
				t.Errorf("from %s to %s:\n got %q\nwant %q", from, name, got, entries[name])
			}
		}
	}
}

// TestFits checks that an operation planned for one layout does not fit another.
func TestFits(t *testing.T) {
	b, _, o := newBench(t, rule.OneTable)
	c := b.apply(o, "k", class(7, 3)...)
	if !c.Writes[0].Fits(rule.OneTable) || c.Writes[0].Fits(three(t)) {
		t.Error("an operation fits the wrong tables")
	}
}

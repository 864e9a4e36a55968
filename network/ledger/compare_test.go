package ledger

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// compareWorld is a ledger, a switch's tables, and the messages in flight between them.
type compareWorld struct {
	l     *Ledger
	o     *Owner
	table *fake.FlowTable
	// queue holds what the switch does next, in order.
	queue []func()
	// changes holds the changes in progress by key.
	changes map[string]*inProgress
	reading *comparing
	// disturbed is set once another controller has changed the tables.
	disturbed bool
}

// inProgress is a change that was planned. Its writes and its deletions are sent some time later,
// as with waves.
type inProgress struct {
	*Change
	unsent                         [][]Op
	delivered, refused, rolledBack bool
}

// comparing is a comparison in progress.
type comparing struct {
	*Comparison
	found    Found
	answered bool // found is complete
	sent     []Op // of the repair
	repaired bool // the switch has confirmed the repair
}

func newCompareWorld(t rapid.TB, layout rule.Layout) *compareWorld {
	t.Helper()
	w := &compareWorld{l: New(1), table: fake.NewFlowTable(nil), changes: map[string]*inProgress{}}
	o, err := w.l.AddOwner("svc", false)
	if err != nil {
		t.Fatal(err)
	}
	w.o = o
	w.l.Ready(o)
	over := w.l.Reading(1, layout)
	w.l.Reconcile(1, Found{})
	w.l.Reconciled(1, nil)
	over()
	return w
}

// apply makes the switch execute one message, and reports whether it accepts it.
func (w *compareWorld) apply(m openflow.Message) bool {
	var e *openflow.Error
	switch m := m.(type) {
	case *openflow.FlowMod:
		_, e = w.table.Flow(m)
	case *openflow.GroupMod:
		_, e = w.table.Group(m)
	case *openflow.MeterMod:
		e = w.table.Meter(m)
	}
	return e == nil
}

// send puts operations in flight, and confirmed behind them.
func (w *compareWorld) send(ops []Op, refused func(Op), confirmed func()) {
	for _, op := range ops {
		w.queue = append(w.queue, func() {
			if !w.apply(op.Message) {
				refused(op)
			}
		})
	}
	w.queue = append(w.queue, confirmed)
}

// deliver makes the switch handle up to n messages.
func (w *compareWorld) deliver(n int) {
	for ; n > 0 && len(w.queue) > 0; n-- {
		next := w.queue[0]
		w.queue = w.queue[1:]
		next()
	}
}

// program returns a random program for the key. Programs of different keys have no rules in
// common, and share groups and meters of the same content.
func (w *compareWorld) program(t *rapid.T, key string) rule.Program {
	var p rule.Program
	meter := rule.Meter{Switch: 1, ID: 3, Flags: openflow.MeterFlagKbps, Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: 1000}}}
	group := rule.Group{Switch: 1, ID: rule.GroupID(w.o.Hash, 7), Type: openflow.GroupTypeAll, Buckets: []openflow.Bucket{openflow.NewBucket(openflow.Output(5))}}
	metered, grouped := rapid.Bool().Draw(t, "meter"), rapid.Bool().Draw(t, "group")
	if metered {
		p.Meters = append(p.Meters, meter)
	}
	if grouped {
		p.Groups = append(p.Groups, group)
	}
	for _, n := range rapid.SliceOfNDistinct(rapid.Uint16Range(0, 3), 0, 3, rapid.ID).Draw(t, "offsets") {
		match := openflow.MustMatch(openflow.InPort(uint32(key[0])))
		r := rule.Rule{Switch: 1, Stage: rule.StageWay, Offset: n, Match: match, Actions: []openflow.Action{openflow.Output(rapid.Uint32Range(1, 3).Draw(t, "out"))}}
		if metered && rapid.Bool().Draw(t, "metered") {
			r.Meter = meter.ID
		}
		if grouped && rapid.Bool().Draw(t, "grouped") {
			r.Actions = append(r.Actions, openflow.GroupAction(group.ID))
		}
		p.Rules = append(p.Rules, r)
		if rapid.Bool().Draw(t, "marked") {
			p.Rules = append(p.Rules, rule.Rule{Switch: 1, Stage: rule.StageClassify, Offset: n, Match: match, Actions: []openflow.Action{openflow.SetQueue(rapid.Uint32Range(1, 2).Draw(t, "queue"))}})
		}
	}
	return p
}

// declare begins a change of a random key.
func (w *compareWorld) declare(t *rapid.T) {
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
	if w.changes[key] != nil {
		return
	}
	c, err := w.l.Plan(w.o, key, w.program(t, key))
	if err != nil {
		t.Fatal(err)
	}
	w.changes[key] = &inProgress{Change: c, unsent: [][]Op{c.Writes, c.Deletes}, delivered: true}
}

// settle takes the next step of a change whose messages so far have been delivered: it sends more,
// confirms the change, or rolls it back.
func (w *compareWorld) settle(key string, rollBack bool) {
	p := w.changes[key]
	switch {
	case p == nil || !p.delivered:
	case len(p.unsent) > 0 && !p.refused:
		ops := p.unsent[0]
		p.unsent, p.delivered = p.unsent[1:], false
		w.send(ops, func(Op) { p.refused = true }, func() { p.delivered = true })
	case p.rolledBack:
		p.Restored()
		delete(w.changes, key)
	case p.refused || rollBack:
		p.rolledBack, p.unsent = true, [][]Op{p.Rollback()}
		p.refused = false
	default:
		p.Confirm()
		delete(w.changes, key)
	}
}

// disturb changes the tables as another controller would.
func (w *compareWorld) disturb(t *rapid.T) {
	w.disturbed = true
	switch rapid.SampledFrom([]string{"delete", "change", "add", "group", "meter", "all"}).Draw(t, "disturbance") {
	case "group":
		w.apply(&openflow.GroupMod{Command: openflow.GroupDelete, Group: rule.GroupID(w.o.Hash, 7)})
	case "meter":
		w.apply(&openflow.MeterMod{Command: openflow.MeterDelete, Meter: 3})
	case "all":
		w.apply(openflow.NewFlowMod(openflow.FlowDelete, openflow.TableAll, 0, openflow.Match{}))
	case "add":
		m := openflow.NewFlowMod(openflow.FlowAdd, 0, 7, openflow.MustMatch(openflow.InPort(9)))
		m.Cookie = uint64(rule.MakeCookie(w.o.Hash, 1, 0xffff))
		w.apply(m)
		w.apply(&openflow.GroupMod{Command: openflow.GroupAdd, Group: rule.GroupID(w.o.Hash, 8)})
	default:
		all := w.table.Entries()
		if len(all) == 0 {
			return
		}
		e := rapid.SampledFrom(all).Draw(t, "entry")
		command := openflow.FlowDeleteStrict
		if rapid.Bool().Draw(t, "modify") {
			command = openflow.FlowModifyStrict
		}
		w.apply(openflow.NewFlowMod(command, e.Table, e.Priority, e.Match, openflow.ApplyActions(openflow.Output(8))))
	}
}

// step takes the next step of a comparison, which is begun if none is in progress.
func (w *compareWorld) step(t *rapid.T) {
	c := w.reading
	switch {
	case c == nil:
		c = &comparing{Comparison: w.l.Compare(1)}
		w.reading = c
		w.queue = append(w.queue, func() { c.found, c.answered = w.found(), true })
	case c.sent == nil && c.answered:
		d := c.Drift(c.found)
		if len(d.Deviations) > 0 && !w.disturbed {
			t.Fatalf("nobody has disturbed the switch, and it deviates: %+v", d.Deviations)
		}
		w.repair(c, d.Ops)
	case c.repaired:
		w.repair(c, w.l.Overtaken(1, c.sent))
	}
}

// repair sends operations of a comparison, and ends it if there are none.
func (w *compareWorld) repair(c *comparing, ops []Op) {
	if len(ops) == 0 {
		c.End()
		w.reading = nil
		return
	}
	c.sent, c.repaired = ops, false
	var refused []Op
	w.send(ops, func(op Op) { refused = append(refused, op) }, func() {
		c.repaired = true
		c.Repaired(ops, refused)
	})
}

// found returns what the switch lists.
func (w *compareWorld) found() (f Found) {
	all := openflow.AllFlows()
	all.Cookie, all.CookieMask = uint64(rule.Magic)<<56, rule.MagicMask
	for _, r := range w.table.Stats(all) {
		f.Rules = append(f.Rules, Reported{Slot: rule.Slot{Table: r.Table, Priority: r.Priority, Match: r.Match}, Cookie: rule.Cookie(r.Cookie), Idle: r.IdleTimeout, Hard: r.HardTimeout, Flags: r.Flags, Instructions: r.Instructions})
	}
	for _, g := range w.table.Groups() {
		f.Groups = append(f.Groups, rule.Group{Switch: 1, ID: g.Group, Type: g.Type, Buckets: g.Buckets})
	}
	for _, m := range w.table.Meters() {
		f.Meters = append(f.Meters, rule.Meter{Switch: 1, ID: m.Meter, Flags: m.Flags, Bands: m.Bands})
	}
	return f
}

// settled delivers and ends everything that is in progress.
func (w *compareWorld) settled(t *rapid.T) {
	for len(w.queue) > 0 || w.reading != nil || len(w.changes) > 0 {
		w.deliver(len(w.queue))
		for _, key := range []string{"a", "b", "c"} {
			w.settle(key, false)
		}
		if w.reading != nil {
			w.step(t)
		}
	}
}

// compareAll runs a comparison without interference and returns its result.
func (w *compareWorld) compareAll() Drift {
	c := w.l.Compare(1)
	defer c.End()
	d := c.Drift(w.found())
	var refused []Op
	for _, op := range d.Ops {
		if !w.apply(op.Message) {
			refused = append(refused, op)
		}
	}
	c.Repaired(d.Ops, refused)
	return d
}

// wanted returns the rules that the switch is to have, and have those that it has.
func (w *compareWorld) wanted() (out []string) {
	s := w.l.stateOf(1)
	for _, e := range s.rules {
		if op, ok := s.write(e, openflow.FlowAdd); ok {
			m := op.Message.(*openflow.FlowMod)
			out = append(out, fmt.Sprint(m.Table, m.Priority, m.Match, m.Instructions))
		}
	}
	slices.Sort(out)
	return out
}

func (w *compareWorld) have() (out []string) {
	for _, e := range w.table.Entries() {
		out = append(out, fmt.Sprint(e.Table, e.Priority, e.Match, e.Instructions))
	}
	slices.Sort(out)
	return out
}

// TestComparisonsConverge makes random changes of what is declared and random changes by another
// controller, while comparisons run. Afterwards two comparisons must bring the switch to what is
// declared. As long as nobody disturbs the switch, no comparison may find a deviation, whichever
// changes are in flight.
func TestComparisonsConverge(t *testing.T) {
	three, err := rule.NewLayout(0, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		layout := rapid.SampledFrom([]rule.Layout{rule.OneTable, three}).Draw(t, "layout")
		w := newCompareWorld(t, layout)
		t.Repeat(map[string]func(*rapid.T){
			"declare": w.declare,
			"deliver": func(t *rapid.T) { w.deliver(rapid.IntRange(1, 8).Draw(t, "messages")) },
			"settle": func(t *rapid.T) {
				w.settle(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"), rapid.IntRange(0, 3).Draw(t, "roll back") == 0)
			},
			"step": w.step,
			"disturb": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					w.disturb(t)
				}
			},
		})
		w.settled(t)
		w.compareAll()
		w.compareAll()
		if want, have := w.wanted(), w.have(); !slices.Equal(want, have) {
			t.Fatalf("the switch has\n%v\nwant\n%v", have, want)
		}
		if d := w.compareAll(); len(d.Ops)+len(d.Deviations) > 0 {
			t.Fatalf("the switch is as wanted, and the comparison finds %+v", d)
		}
		if s := w.l.switches[1]; s != nil && len(w.table.Groups())+len(w.table.Meters()) != len(s.groups)+len(s.meters) {
			t.Fatalf("the switch has groups %v and meters %v, want those of %v and %v", w.table.Groups(), w.table.Meters(), s.groups, s.meters)
		}
		if n := len(w.l.open) + len(w.l.comparisons); n != 0 {
			t.Fatalf("%d changes and comparisons are left open", n)
		}
	})
}

// TestBurstWithoutItsFlagIsNoDeviation checks that a meter without burst sizes is as declared when
// the switch lists sizes of its own, as Open vSwitch does, and that declared sizes are compared.
func TestBurstWithoutItsFlagIsNoDeviation(t *testing.T) {
	for _, flags := range []uint16{openflow.MeterFlagKbps, openflow.MeterFlagKbps | openflow.MeterFlagBurst} {
		w := newCompareWorld(t, rule.OneTable)
		declared := rule.Meter{Switch: 1, ID: 3, Flags: flags, Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: 1000}}}
		c, err := w.l.Plan(w.o, "k", rule.Program{Meters: []rule.Meter{declared}})
		if err != nil {
			t.Fatal(err)
		}
		c.Confirm()
		listed := declared
		listed.Bands = []openflow.MeterBand{{Type: openflow.BandDrop, Rate: 1000, Burst: 1000}}
		comparison := w.l.Compare(1)
		d := comparison.Drift(Found{Meters: []rule.Meter{listed}})
		comparison.End()
		if want := flags&openflow.MeterFlagBurst != 0; len(d.Deviations) > 0 != want {
			t.Errorf("with flags %#x deviations are %v, want any: %v", flags, d.Deviations, want)
		}
	}
}

package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Found is what a switch holds when it connects.
type Found struct {
	// Rules are those whose cookie is ours.
	Rules  []Reported
	Groups []rule.Group
	Meters []rule.Meter
}

// Reconciliation is the difference between what a switch holds and what is wanted.
type Reconciliation struct {
	// Ops bring the switch to the wanted state, in an order that interrupts nothing.
	Ops []Op
	// Kept, Written, Removed and Left count rules: left as they were; missing or
	// different and sent; orphans removed; of owners that are not ready yet.
	Kept, Written, Removed, Left int
}

// Reading says that a switch of a layout is about to be read, and that changes may be sent
// to it from now on. What it returns is to be called when it is reconciled, or is not.
func (l *Ledger) Reading(sw openflow.DatapathID, layout rule.Layout) (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state(sw)
	s.layout, s.sent = layout, map[rule.Key]struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.state(sw).sent = nil
		l.dropEmpty(sw)
	}
}

// Sending says that operations are about to be sent to a switch. While it is being
// read, what was read may be older than they are.
func (l *Ledger) Sending(sw openflow.DatapathID, ops []Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.switches[sw]
	if s == nil || s.sent == nil {
		return
	}
	for _, op := range ops {
		if op.Rule != nil {
			s.sent[op.Rule.Key()] = struct{}{}
		}
	}
}

// Reconcile compares what a switch holds with what is wanted on it. Rules that
// are as wanted are kept untouched, whatever generation wrote them.
func (l *Ledger) Reconcile(sw openflow.DatapathID, f Found) Reconciliation {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state(sw)
	var rec Reconciliation
	clear(s.unclaimed)
	for _, e := range s.rules {
		e.Confirmed = false
	}
	rec.Ops = append(rec.Ops, l.reconcileGroups(s, f.Groups)...)
	rec.Ops = append(rec.Ops, l.reconcileMeters(s, f.Meters)...)
	var orphans []Op
	moved := false // the switch has rules in tables where they do not belong any more
	for i := range f.Rules {
		r := &f.Rules[i]
		r.Switch = sw
		_, ok := s.layout.Key(r.Slot)
		moved = moved || !ok
		switch l.judge(s, r) {
		case kept:
			rec.Kept++
		case left:
			rec.Left++
		case orphan:
			rec.Removed++
			orphans = append(orphans, s.remove(sw, r.Slot, r.Cookie, nil))
		}
	}
	for _, e := range s.missing(moved) {
		rec.Written++
		rec.Ops = s.appendWrite(rec.Ops, e, openflow.FlowAdd)
	}
	slices.SortStableFunc(orphans, leaving)
	rec.Ops = append(rec.Ops, orphans...)
	rec.Ops = append(rec.Ops, l.strangeGroups(s, f.Groups)...)
	return rec
}

// missing lists the rules that the switch does not have as wanted: the last table's first,
// as others go on to it, and in a table the lowest priority first. If it has moved into one
// table, the highest comes first: what is below goes by the old tables until the miss is
// written.
func (s *state) missing(moved bool) []*Entry {
	var out []*Entry
	for _, e := range s.rules {
		if !e.Confirmed && s.layout.Holds(&e.Rule) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *Entry) int {
		by := cmp.Compare(a.Rule.Priority(), b.Rule.Priority())
		if s.layout.Tables() {
			by = cmp.Or(cmp.Compare(b.Rule.Table(), a.Rule.Table()), by)
		} else if moved {
			by = -by
		}
		return cmp.Or(by, cmp.Compare(a.Cookie, b.Cookie))
	})
	return out
}

// leaving is the order in which rules are deleted that nobody wants there: the first
// table's first, which others are reached by, and in a table the lowest priority first, so
// that none takes packets that one above it had.
func leaving(a, b Op) int {
	x, y := a.Message.(*openflow.FlowMod), b.Message.(*openflow.FlowMod)
	return cmp.Or(cmp.Compare(x.Table, y.Table), cmp.Compare(x.Priority, y.Priority))
}

type judgement uint8

const (
	kept judgement = iota
	replaced
	left
	orphan
)

// judge says what becomes of a rule found on a switch.
func (l *Ledger) judge(s *state, r *Reported) judgement {
	if e := s.at(r.Slot); e != nil {
		_, sent := s.sent[e.Rule.Key()]
		want, _ := s.written(e)
		if !r.equals(s.layout, want) || r.Cookie.Owner() != e.owner.Hash || sent && r.Cookie != e.Cookie {
			return replaced // it will be written over, or has been since it was read
		}
		e.Cookie, e.Confirmed = r.Cookie, true
		return kept
	}
	o := l.owners[r.Cookie.Owner()]
	if o == nil {
		return orphan
	}
	if !o.ready {
		s.unclaimed[r.Slot] = r
		return left
	}
	if o.adopt && l.adoptRule(s, o, r) {
		return kept
	}
	return orphan
}

// adoptRule takes a found rule into the ledger.
func (l *Ledger) adoptRule(s *state, o *Owner, r *Reported) bool {
	k, here := s.layout.Key(r.Slot)
	v, ok := r.rule(s.layout)
	if !ok || !here || s.rules[k] != nil {
		return false
	}
	s.rules[k] = &Entry{Rule: v, Cookie: r.Cookie, Confirmed: true, owner: o, keys: []string{Adopted}}
	d := o.programs[Adopted]
	if d == nil {
		d = &declared{}
		o.programs[Adopted] = d
	}
	d.rules = append(d.rules, place[rule.Key]{r.Switch, k})
	return true
}

// Ready says that the owner has declared what it wants from before a restart.
// What was found on the switches beyond that is adopted, or given back as
// deletions to send.
func (l *Ledger) Ready(o *Owner) []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.ready {
		return nil
	}
	o.ready = true
	var ops []Op
	for sw, s := range l.switches {
		var gone []Op
		for at, r := range s.unclaimed {
			if r.Cookie.Owner() != o.Hash {
				continue
			}
			delete(s.unclaimed, at)
			if !o.adopt || !l.adoptRule(s, o, r) {
				gone = append(gone, s.remove(sw, at, r.Cookie, nil))
			}
		}
		slices.SortFunc(gone, leaving)
		ops = append(ops, gone...)
		for _, id := range sortedKeys(s.groups) {
			if g := s.groups[id]; g.owner == nil && l.allReady(id) {
				delete(s.groups, id)
				ops = append(ops, writeGroup(&g.value, openflow.GroupDelete))
			}
		}
	}
	return ops
}

func (l *Ledger) reconcileGroups(s *state, found []rule.Group) []Op {
	have := make(map[uint32]*rule.Group, len(found))
	for i := range found {
		have[found[i].ID] = &found[i]
	}
	return reconcileItems(s.groups, have, sameGroup, writeGroup, openflow.GroupAdd, openflow.GroupModify)
}

func (l *Ledger) reconcileMeters(s *state, found []rule.Meter) []Op {
	have := make(map[uint32]*rule.Meter, len(found))
	for i := range found {
		have[found[i].ID] = &found[i]
	}
	ops := reconcileItems(s.meters, have, sameMeter, writeMeter, openflow.MeterAdd, openflow.MeterModify)
	for id, m := range have { // meters do not tell whose they are
		if s.meters[id] == nil {
			s.meters[id] = &item[rule.Meter]{value: *m}
		}
	}
	return ops
}

// forgetFound takes out what was found when the switch connected before.
func forgetFound[T any](m map[uint32]*item[T]) {
	maps.DeleteFunc(m, func(_ uint32, i *item[T]) bool { return i.owner == nil })
}

// strangeGroups deletes groups that bear our mark and that nobody wants, once
// the owner they belong to is ready.
func (l *Ledger) strangeGroups(s *state, found []rule.Group) []Op {
	var ops []Op
	for i := range found {
		g := &found[i]
		if _, wanted := s.groups[g.ID]; wanted || !rule.GroupOurs(g.ID) {
			continue
		}
		if l.allReady(g.ID) {
			ops = append(ops, writeGroup(g, openflow.GroupDelete))
		} else {
			s.groups[g.ID] = &item[rule.Group]{value: *g}
		}
	}
	return ops
}

// allReady reports whether every owner is ready that a group may belong to.
func (l *Ledger) allReady(group uint32) bool {
	for _, o := range l.owners {
		if !o.ready && rule.GroupOf(group, o.Hash) {
			return false
		}
	}
	return true
}

func sortedKeys[T any](m map[uint32]*T) []uint32 {
	out := make([]uint32, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Overtaken looks for changes that were made while a reconciliation was sent, and
// may have reached the switch before it. It returns what sets these right, and
// is to be asked about that again.
func (l *Ledger) Overtaken(sw openflow.DatapathID, sent []Op) []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state(sw)
	var ops []Op
	for _, op := range sent {
		if op.Rule == nil {
			continue
		}
		k := op.Rule.Key()
		switch e := s.rules[k]; {
		case e == nil:
			written, _ := op.Message.(*openflow.FlowMod)
			ops = append(ops, s.remove(sw, s.layout.Slot(k), rule.Cookie(written.Cookie), nil))
		case &e.Rule != op.Rule:
			ops = s.appendWrite(ops, e, openflow.FlowAdd)
		}
	}
	return ops
}

// Reconciled takes note that a switch has taken the operations of a
// reconciliation, but for those it has refused.
func (l *Ledger) Reconciled(sw openflow.DatapathID, refused []Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state(sw)
	no := make(map[*rule.Rule]struct{}, len(refused))
	for _, op := range refused {
		no[op.Rule] = struct{}{}
	}
	for _, e := range s.rules {
		_, not := no[&e.Rule]
		e.Confirmed = !not
	}
	for _, g := range s.groups {
		g.confirmed = true
	}
	for _, m := range s.meters {
		m.confirmed = true
	}
}

// reconcileItems adds the wanted groups or meters that a switch does not have,
// and modifies those that it has otherwise.
func reconcileItems[T any](wanted map[uint32]*item[T], have map[uint32]*T, same func(a, b *T) bool, write func(*T, uint16) Op, add, modify uint16) []Op {
	var ops []Op
	forgetFound(wanted)
	for _, id := range sortedKeys(wanted) {
		want := &wanted[id].value
		switch h := have[id]; {
		case h == nil:
			ops = append(ops, write(want, add))
		case !same(h, want):
			ops = append(ops, write(want, modify))
		}
	}
	return ops
}

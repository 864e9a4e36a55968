package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Found holds the rules, groups and meters that a switch has listed.
type Found struct {
	// Rules are the rules with a cookie of Sluice.
	Rules  []Reported
	Groups []rule.Group
	Meters []rule.Meter
	// NoGroups and NoMeters are set if the switch did not list its groups or meters.
	NoGroups, NoMeters bool
}

// Reconciliation is the difference between what a switch holds and what is wanted.
type Reconciliation struct {
	// Ops bring the switch to the wanted state, in an order that interrupts no traffic.
	Ops []Op
	// Kept counts the rules that are unchanged, and Written those that are sent because they are
	// missing or different. Removed counts the orphaned rules, which are deleted, and Left those
	// that are left alone because their owners are not ready yet.
	Kept, Written, Removed, Left int
}

// Reading records that a switch with the given layout is about to be read, and that changes may
// be sent to it from now on. The caller must call the returned function when reconciliation has
// ended or failed.
func (l *Ledger) Reading(sw openflow.DatapathID, layout rule.Layout) (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.comparisons, sw) // of the previous session
	s, r := l.stateOf(sw), &reading{sent: map[rule.Key]struct{}{}}
	s.layout, s.reading = layout, r
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s := l.stateOf(sw); s.reading == r { // the switch has not connected again meanwhile
			s.reading = nil
		}
		l.dropEmpty(sw)
	}
}

// Sending records that operations are about to be sent to a switch. While the switch is being
// read, the entries read may be older than these operations.
func (l *Ledger) Sending(sw openflow.DatapathID, ops []Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.switches[sw]
	if s == nil || s.reading == nil {
		return
	}
	for _, op := range ops {
		if op.Rule != nil {
			s.reading.sent[op.Rule.Key()] = struct{}{}
		}
	}
}

// wasSent reports whether the rule was sent after the reading of the switch had begun.
func (s *switchState) wasSent(k rule.Key) bool {
	if s.reading == nil {
		return false
	}
	_, sent := s.reading.sent[k]
	return sent
}

// Reconcile compares what a switch holds with what is wanted on it. It keeps rules that are as
// wanted, whichever generation has written them.
func (l *Ledger) Reconcile(sw openflow.DatapathID, f Found) Reconciliation {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stateOf(sw)
	var rec Reconciliation
	clear(s.unclaimed)
	for _, e := range s.rules {
		e.Confirmed = false
	}
	rec.Ops = append(rec.Ops, l.reconcileGroups(s, f.Groups)...)
	rec.Ops = append(rec.Ops, l.reconcileMeters(s, f.Meters)...)
	var orphans []Op
	moved := false // the switch has rules in tables of a former layout
	for i := range f.Rules {
		r := &f.Rules[i]
		r.Switch = sw
		_, ok := s.layout.Key(r.Slot)
		moved = moved || !ok
		switch l.classify(s, r) {
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
	slices.SortStableFunc(orphans, compareDeletes)
	rec.Ops = append(rec.Ops, orphans...)
	rec.Ops = append(rec.Ops, l.deleteUnwantedGroups(s, f.Groups)...)
	return rec
}

// missing returns the wanted rules that the switch does not have, in the order in which they are
// to be written.
func (s *switchState) missing(moved bool) []*Entry {
	var out []*Entry
	for _, e := range s.rules {
		if !e.Confirmed && s.layout.Holds(&e.Rule) {
			out = append(out, e)
		}
	}
	return s.writeOrder(out, moved)
}

// writeOrder sorts rules into the order in which they are to be written. Rules of the last table
// come first, because other tables lead to it. In a table, rules of the lowest priority come first.
// If the switch has changed from several tables to one (moved), the highest priority comes first:
// packets that match none of the new rules use the old tables until the miss rule is written.
func (s *switchState) writeOrder(out []*Entry, moved bool) []*Entry {
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

// compareDeletes orders the deletions of unwanted rules: the first table first, because packets
// reach the others through it. In a table the lowest priority comes first, so that no rule gets
// packets which a deleted rule above it had.
func compareDeletes(a, b Op) int {
	x, y := a.Message.(*openflow.FlowMod), b.Message.(*openflow.FlowMod)
	return cmp.Or(cmp.Compare(x.Table, y.Table), cmp.Compare(x.Priority, y.Priority))
}

type verdict uint8

const (
	kept verdict = iota
	replaced
	left
	orphan
)

// classify decides what happens to a rule found on a switch.
func (l *Ledger) classify(s *switchState, r *Reported) verdict {
	if e := s.at(r.Slot); e != nil {
		want, _ := s.wanted(e)
		if !r.equals(s.layout, want) || r.Cookie.Owner() != e.owner.Hash || r.Cookie != e.Cookie && s.wasSent(e.Rule.Key()) {
			return replaced // it will be overwritten, or has been since it was read
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

// adoptRule adds a found rule to the ledger under the key Adopted, and reports whether it did.
func (l *Ledger) adoptRule(s *switchState, o *Owner, r *Reported) bool {
	k, hasKey := s.layout.Key(r.Slot)
	v, ok := r.toRule(s.layout)
	if !ok || !hasKey || s.rules[k] != nil {
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

// Ready records that the owner has declared everything that it wants from before a restart.
// Other rules found on the switches are adopted, or Ready returns operations that delete them.
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
			l.excludeSlot(sw, s, at)
			delete(s.unclaimed, at)
			if !o.adopt || !l.adoptRule(s, o, r) {
				gone = append(gone, s.remove(sw, at, r.Cookie, nil))
			}
		}
		slices.SortFunc(gone, compareDeletes)
		ops = append(ops, gone...)
		for _, id := range sortedKeys(s.groups) {
			if g := s.groups[id]; g.owner == nil && l.allReady(id) {
				l.excludeGroup(sw, id)
				delete(s.groups, id)
				ops = append(ops, writeGroup(&g.value, openflow.GroupDelete))
			}
		}
	}
	return ops
}

func (l *Ledger) reconcileGroups(s *switchState, found []rule.Group) []Op {
	have := make(map[uint32]*rule.Group, len(found))
	for i := range found {
		have[found[i].ID] = &found[i]
	}
	return reconcileItems(s.groups, have, sameGroup, writeGroup, openflow.GroupAdd, openflow.GroupModify)
}

func (l *Ledger) reconcileMeters(s *switchState, found []rule.Meter) []Op {
	have := make(map[uint32]*rule.Meter, len(found))
	for i := range found {
		have[found[i].ID] = &found[i]
	}
	ops := reconcileItems(s.meters, have, sameMeter, writeMeter, openflow.MeterAdd, openflow.MeterModify)
	for id, m := range have { // a meter's number does not name its owner
		if s.meters[id] == nil {
			s.meters[id] = &item[rule.Meter]{value: *m}
		}
	}
	return ops
}

// forgetFound removes the items that were found when the switch last connected.
func forgetFound[T any](m map[uint32]*item[T]) {
	maps.DeleteFunc(m, func(_ uint32, i *item[T]) bool { return i.owner == nil })
}

// deleteUnwantedGroups returns the deletions of groups that Sluice has made and nobody wants. A
// group whose owner may not be ready yet stays.
func (l *Ledger) deleteUnwantedGroups(s *switchState, found []rule.Group) []Op {
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

// allReady reports whether every owner to which a group may belong is ready.
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

// Overtaken returns the operations that correct the switch after a reconciliation or a comparison:
// changes made while its operations were being sent may have reached the switch first. The caller
// sends them and calls Overtaken again with what it has sent, until nothing is returned.
func (l *Ledger) Overtaken(sw openflow.DatapathID, sent []Op) []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stateOf(sw)
	var ops []Op
	for _, op := range sent {
		switch m := op.Message.(type) {
		case *openflow.FlowMod:
			ops = s.overtakenRule(ops, op.Rule, m)
		case *openflow.GroupMod:
			written := rule.Group{Switch: sw, ID: m.Group, Type: m.Type, Buckets: m.Buckets}
			if m.Command != openflow.GroupDelete {
				ops = overtakenItem(ops, s.groups[m.Group], &written, sameGroup, writeGroup, openflow.GroupModify, openflow.GroupDelete)
			}
		case *openflow.MeterMod:
			written := rule.Meter{Switch: sw, ID: m.Meter, Flags: m.Flags, Bands: m.Bands}
			if m.Command != openflow.MeterDelete {
				ops = overtakenItem(ops, s.meters[m.Meter], &written, sameMeter, writeMeter, openflow.MeterModify, openflow.MeterDelete)
			}
		}
	}
	return ops
}

// overtakenRule appends the operation that corrects a rule after it was written.
func (s *switchState) overtakenRule(ops []Op, r *rule.Rule, written *openflow.FlowMod) []Op {
	if r == nil {
		return ops
	}
	k := r.Key()
	switch e := s.rules[k]; {
	case e == nil:
		return append(ops, s.remove(r.Switch, s.layout.Slot(k), rule.Cookie(written.Cookie), nil))
	case &e.Rule != r:
		return s.appendWrite(ops, e, openflow.FlowAdd)
	}
	return ops
}

// overtakenItem appends the operation that corrects a group or meter after it was written.
func overtakenItem[T any](ops []Op, wanted *item[T], written *T, same func(a, b *T) bool, write func(*T, uint16) Op, modify, remove uint16) []Op {
	switch {
	case wanted == nil:
		return append(ops, write(written, remove))
	case !same(&wanted.value, written):
		return append(ops, write(&wanted.value, modify))
	}
	return ops
}

// Reconciled records that a switch has accepted the operations of a reconciliation, except the
// refused ones.
func (l *Ledger) Reconciled(sw openflow.DatapathID, refused []Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stateOf(sw)
	for _, e := range s.rules {
		e.Confirmed = true
	}
	for _, g := range s.groups {
		g.confirmed = true
	}
	for _, m := range s.meters {
		m.confirmed = true
	}
	for i := range refused {
		s.confirm(&refused[i], false)
	}
}

// reconcileItems returns the operations that add the wanted groups or meters which a switch
// lacks, and modify those that differ.
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

package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Comparison compares what a connected switch holds with what owners want on it. It leaves out
// rules, groups and meters that change while it runs, because the switch may have listed an older
// state of them.
//
// [Ledger.Compare] begins a comparison, and the caller then reads the switch. Drift returns the
// differences, and Repaired records which of its operations the switch has accepted.
type Comparison struct {
	l      *Ledger
	sw     openflow.DatapathID
	number uint64
	// rules, groups and meters identify what has changed since the comparison began, or was being
	// changed at that time.
	rules          map[rule.Key]struct{}
	groups, meters map[uint32]struct{}
}

// Drift is the difference between what a switch holds and what is wanted on it.
type Drift struct {
	// Ops bring the switch to the wanted state.
	Ops []Op
	// Deviations count the things that were not as wanted, ordered by owner and kind.
	Deviations []Deviation
	// Expired are rules with timeouts that the switch no longer has. They have left the ledger.
	Expired []Expired
}

// Deviation counts the things of one owner and kind that were not as wanted on a switch.
type Deviation struct {
	// Owner is the owner's name, or empty if the owner is unknown.
	Owner  string
	Object Object
	// Missing things were gone, Changed ones were different from what their owner wants, and
	// nobody wants Foreign ones.
	Missing, Changed, Foreign int
}

// CompareDeviations orders deviations by owner and kind.
func CompareDeviations(a, b Deviation) int {
	return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Object, b.Object))
}

// Object is the kind of thing that owners declare.
type Object string

// The kinds of things that owners declare.
const (
	ObjectRule  Object = "rule"
	ObjectGroup Object = "group"
	ObjectMeter Object = "meter"
)

// Expired is a rule with timeouts that a switch no longer has, and its owner.
type Expired struct {
	Owner *Owner
	rule.Installed
}

// maxForeign is the number of unwanted rules or groups that one comparison deletes. Whoever adds
// them could otherwise make the controller send any number of messages at once.
const maxForeign = 4096

// Compare begins a comparison of a switch, which must be reconciled. It replaces a comparison of
// the same switch that has not ended.
func (l *Ledger) Compare(sw openflow.DatapathID) *Comparison {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.numComparisons++
	c := &Comparison{l: l, sw: sw, number: l.numComparisons, rules: map[rule.Key]struct{}{}, groups: map[uint32]struct{}{}, meters: map[uint32]struct{}{}}
	l.comparisons[sw] = c
	return c
}

// End ends the comparison.
func (c *Comparison) End() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.comparisons[c.sw] == c {
		delete(c.l.comparisons, c.sw)
	}
	c.l.dropEmpty(c.sw)
}

// exclude leaves the rules, groups and meters of a change out of the comparisons of their switches.
func (l *Ledger) exclude(ch *Change) {
	if len(l.comparisons) == 0 {
		return
	}
	for _, r := range ch.rules {
		l.excludeRule(r.sw, r.key)
	}
	for _, g := range ch.groups {
		l.excludeGroup(g.sw, g.key)
	}
	for _, m := range ch.meters {
		if c := l.comparisons[m.sw]; c != nil {
			c.meters[m.key] = struct{}{}
		}
	}
}

// excludeRule leaves a rule out of the switch's comparison. If the rule is a mark, it also leaves
// out the rule of the path that the mark belongs to.
func (l *Ledger) excludeRule(sw openflow.DatapathID, k rule.Key) {
	c := l.comparisons[sw]
	if c == nil {
		return
	}
	c.rules[k] = struct{}{}
	if isMark(k) {
		c.rules[rule.WayOf(k)] = struct{}{}
	}
}

// excludeSlot is excludeRule for a slot of the switch.
func (l *Ledger) excludeSlot(sw openflow.DatapathID, s *switchState, at rule.Slot) {
	if k, ok := s.layout.Key(at); ok {
		l.excludeRule(sw, k)
	}
}

// excludeGroup leaves a group out of the switch's comparison.
func (l *Ledger) excludeGroup(sw openflow.DatapathID, id uint32) {
	if c := l.comparisons[sw]; c != nil {
		c.groups[id] = struct{}{}
	}
}

// Drift compares what was read from the switch since the comparison began with what is wanted.
// It treats rules and groups that nobody wants as a reconciliation does, and excludes rules of
// owners that are not ready. A rule that the switch has refused before is written again, but does
// not count as a deviation.
func (c *Comparison) Drift(f Found) Drift {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.comparisons[c.sw] != c {
		return Drift{} // the switch has connected again
	}
	for ch := range c.l.open {
		c.l.exclude(ch)
	}
	d := differ{comparison: c, s: c.l.stateOf(c.sw)}
	if !f.NoGroups {
		d.groupDrift(f.Groups)
	}
	if !f.NoMeters {
		d.meterDrift(f.Meters)
	}
	d.ruleDrift(f.Rules)
	return d.result()
}

// differ collects the differences of one comparison.
type differ struct {
	comparison *Comparison
	s          *switchState

	drift   Drift
	counts  map[deviationKey]*Deviation
	rewrite []*Entry
	orphans []Op // deletions of rules
	groups  []Op // deletions of groups
}

type deviationKey struct {
	owner  string
	object Object
}

// count returns the counts of an owner and kind.
func (d *differ) count(owner string, o Object) *Deviation {
	k := deviationKey{owner, o}
	if d.counts[k] == nil {
		if d.counts == nil {
			d.counts = map[deviationKey]*Deviation{}
		}
		d.counts[k] = &Deviation{Owner: owner, Object: o}
	}
	return d.counts[k]
}

// result returns the differences with the operations in order: the groups and meters that rules need
// come first, and deletions come last.
func (d *differ) result() Drift {
	for _, e := range d.s.writeOrder(d.rewrite, false) {
		d.drift.Ops = d.s.appendWrite(d.drift.Ops, e, openflow.FlowAdd)
	}
	slices.SortStableFunc(d.orphans, compareDeletes)
	d.drift.Ops = slices.Concat(d.drift.Ops, d.orphans, d.groups)
	for _, v := range d.counts {
		d.drift.Deviations = append(d.drift.Deviations, *v)
	}
	slices.SortFunc(d.drift.Deviations, CompareDeviations)
	return d.drift
}

// ruleDrift compares the rules.
func (d *differ) ruleDrift(found []Reported) {
	unclaimed := map[rule.Slot]*Reported{}
	for i := range found {
		r := &found[i]
		r.Switch = d.comparison.sw
		k, hasKey := d.s.layout.Key(r.Slot)
		e := d.s.at(r.Slot)
		if e != nil {
			e.seen = d.comparison.number
		}
		if _, excluded := d.comparison.rules[k]; hasKey && excluded {
			continue
		}
		if e != nil {
			d.compareRule(e, r)
			continue
		}
		o := d.comparison.l.owners[r.Cookie.Owner()]
		switch {
		case o != nil && !o.ready:
			unclaimed[r.Slot] = new(*r)
		case o != nil && o.adopt && d.comparison.l.adoptRule(d.s, o, r):
			d.s.rules[k].seen = d.comparison.number
		case len(d.orphans) < maxForeign:
			d.count(ownerName(o), ObjectRule).Foreign++
			d.orphans = append(d.orphans, d.s.remove(d.comparison.sw, r.Slot, r.Cookie, nil))
		}
	}
	d.missingRules()
	for at, r := range d.s.unclaimed {
		if k, ok := d.s.layout.Key(at); ok {
			if _, excluded := d.comparison.rules[k]; excluded {
				unclaimed[at] = r
			}
		}
	}
	d.s.unclaimed = unclaimed
}

func ownerName(o *Owner) string {
	if o == nil {
		return ""
	}
	return o.Name
}

// compareRule compares a wanted rule with the one that the switch has in its place.
func (d *differ) compareRule(e *Entry, r *Reported) {
	want, _ := d.s.wanted(e)
	if r.Cookie.Owner() == e.owner.Hash && r.equals(d.s.layout, want) {
		e.Cookie, e.Confirmed = r.Cookie, true
		return
	}
	if e.Confirmed {
		d.count(e.owner.Name, ObjectRule).Changed++
	}
	e.Confirmed = false
	d.rewrite = append(d.rewrite, e)
}

// missingRules handles the wanted rules that the switch has not listed.
func (d *differ) missingRules() {
	for k, e := range d.s.rules {
		if _, excluded := d.comparison.rules[k]; excluded || e.seen == d.comparison.number || !d.s.layout.Holds(&e.Rule) {
			continue
		}
		if e.Rule.Expires() {
			if e.Confirmed {
				d.drift.Expired = append(d.drift.Expired, Expired{e.owner, d.s.appendInstalled(nil, e, e.keys[0])[0]})
				d.comparison.l.forgetRule(d.s, d.comparison.sw, e)
			}
			continue
		}
		if e.Confirmed {
			d.count(e.owner.Name, ObjectRule).Missing++
		}
		e.Confirmed = false
		d.rewrite = append(d.rewrite, e)
	}
}

// groupDrift compares the groups.
func (d *differ) groupDrift(found []rule.Group) {
	compareItems(d, ObjectGroup, d.s.groups, d.comparison.groups, found, func(g *rule.Group) uint32 { return g.ID }, sameGroup, writeGroup, openflow.GroupAdd, openflow.GroupModify)
	for i := range found {
		g := &found[i]
		_, excluded := d.comparison.groups[g.ID]
		switch {
		case excluded || d.s.groups[g.ID] != nil || !rule.GroupOurs(g.ID):
		case !d.comparison.l.allReady(g.ID):
			d.s.groups[g.ID] = &item[rule.Group]{value: *g}
		case len(d.groups) < maxForeign:
			d.count(d.comparison.l.groupOwner(g.ID), ObjectGroup).Foreign++
			d.groups = append(d.groups, writeGroup(g, openflow.GroupDelete))
		}
	}
}

// groupOwner returns the name of the owner whose hash is in the group's number, or an empty string
// if that is the hash of no owner or of several.
func (l *Ledger) groupOwner(id uint32) string {
	name := ""
	for _, o := range l.owners {
		if !rule.GroupOf(id, o.Hash) {
			continue
		}
		if name != "" {
			return ""
		}
		name = o.Name
	}
	return name
}

// meterDrift compares the meters. A meter's number does not name its owner, so meters that nobody
// wants stay, as at a reconciliation.
func (d *differ) meterDrift(found []rule.Meter) {
	compareItems(d, ObjectMeter, d.s.meters, d.comparison.meters, found, func(m *rule.Meter) uint32 { return m.ID }, sameMeter, writeMeter, openflow.MeterAdd, openflow.MeterModify)
	for i := range found {
		m := &found[i]
		if _, excluded := d.comparison.meters[m.ID]; !excluded && d.s.meters[m.ID] == nil {
			d.s.meters[m.ID] = &item[rule.Meter]{value: *m}
		}
	}
}

// compareItems compares the wanted groups or meters with those that the switch has.
func compareItems[T any](d *differ, o Object, items map[uint32]*item[T], excluded map[uint32]struct{}, found []T, id func(*T) uint32, same func(a, b *T) bool, write func(*T, uint16) Op, add, modify uint16) {
	have := make(map[uint32]*T, len(found))
	for i := range found {
		have[id(&found[i])] = &found[i]
	}
	for _, number := range slices.Sorted(maps.Keys(items)) {
		i, h := items[number], have[number]
		_, isExcluded := excluded[number]
		switch {
		case isExcluded:
		case i.owner == nil && h == nil:
			delete(items, number)
		case i.owner == nil:
			i.value = *h
		case h == nil:
			if i.confirmed {
				d.count(i.owner.Name, o).Missing++
			}
			i.confirmed = false
			d.drift.Ops = append(d.drift.Ops, write(&i.value, add))
		case !same(h, &i.value):
			if i.confirmed {
				d.count(i.owner.Name, o).Changed++
			}
			i.confirmed = false
			d.drift.Ops = append(d.drift.Ops, write(&i.value, modify))
		default:
			i.confirmed = true
		}
	}
}

// Repaired records that the switch has accepted operations of the comparison, except the refused
// ones.
func (c *Comparison) Repaired(ops, refused []Op) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.comparisons[c.sw] != c {
		return
	}
	s := c.l.stateOf(c.sw)
	for i := range ops {
		s.confirm(&ops[i], true)
	}
	for i := range refused {
		s.confirm(&refused[i], false)
	}
}

// confirm records whether the switch has accepted what an operation writes.
func (s *switchState) confirm(op *Op, accepted bool) {
	switch m := op.Message.(type) {
	case *openflow.FlowMod:
		if op.Rule == nil {
			return
		}
		if e := s.rules[op.Rule.Key()]; e != nil && &e.Rule == op.Rule {
			e.Confirmed = accepted
		}
	case *openflow.GroupMod:
		if g := s.groups[m.Group]; g != nil && m.Command != openflow.GroupDelete {
			g.confirmed = accepted
		}
	case *openflow.MeterMod:
		if i := s.meters[m.Meter]; i != nil && m.Command != openflow.MeterDelete {
			i.confirmed = accepted
		}
	}
}

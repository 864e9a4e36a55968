package ledger

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Change is the difference between what was declared under a key before and what is declared
// now. The caller must call either Confirm, once, or Rollback and then Restored. Until then
// comparisons leave out the rules, groups and meters that it changes.
type Change struct {
	// Writes are to be sent first, in order, and Deletes after them.
	Writes, Deletes []Op

	l       *Ledger
	owner   *Owner
	key     string
	before  *declared
	rules   []change[rule.Key, Entry]
	groups  []change[uint32, item[rule.Group]]
	meters  []change[uint32, item[rule.Meter]]
	claimed []*Reported
}

// change holds the content of one place of the ledger before and after a Change. nil means that the
// place was empty before, or is empty now.
type change[K comparable, T any] struct {
	place[K]
	old, new *T
}

// Empty reports whether there is nothing to send.
func (c *Change) Empty() bool { return len(c.Writes)+len(c.Deletes) == 0 }

// Switches returns the switches for which there are operations, in ascending order.
func (c *Change) Switches() []openflow.DatapathID {
	var out []openflow.DatapathID
	for _, ops := range [][]Op{c.Writes, c.Deletes} {
		for _, op := range ops {
			out = append(out, op.Switch)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Plan makes p the desired state of the owner's key, and returns the change with the operations
// to send. If it refuses p, it changes nothing.
func (l *Ledger) Plan(o *Owner, key string, p rule.Program) (*Change, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &Change{l: l, owner: o, key: key, before: o.programs[key]}
	after := &declared{}
	err := c.planGroups(after, p.Groups)
	if err == nil {
		err = c.planMeters(after, p.Meters)
	}
	if err == nil {
		err = c.planRules(after, p.Rules)
	}
	if err != nil {
		c.undoPlan()
		return nil, err
	}
	c.planDeletes(after)
	c.planMarkedPaths()
	l.open[c] = struct{}{}
	o.programs[key] = after
	if len(after.rules)+len(after.groups)+len(after.meters) == 0 {
		delete(o.programs, key)
	}
	return c, nil
}

// planRules adds the rules to the ledger. It adds marks first, because on switches with one table
// they become part of other rules.
func (c *Change) planRules(after *declared, rules []rule.Rule) error {
	seen := make(map[place[rule.Key]]struct{}, len(rules))
	for _, marks := range []bool{true, false} {
		for i := range rules {
			if (rules[i].Stage == rule.StageClassify) != marks {
				continue
			}
			if err := c.addRule(after, seen, &rules[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// addRule checks one rule and adds it to the ledger.
func (c *Change) addRule(after *declared, seen map[place[rule.Key]]struct{}, declared *rule.Rule) error {
	r := *declared
	err := checkRule(&r)
	if err == nil {
		at := place[rule.Key]{r.Switch, r.Key()}
		if _, twice := seen[at]; twice {
			err = fmt.Errorf("%w: the program has two rules for this stage, offset and match", ErrInvalid)
		} else if err = c.planRule(at, r); err == nil {
			seen[at] = struct{}{}
			after.leased = after.leased || r.Leased
			after.rules = append(after.rules, at)
			return nil
		}
	}
	return &RuleError{Switch: r.Switch, Rule: declared, Err: err}
}

// checkRule returns an error if no switch would accept the rule.
func checkRule(r *rule.Rule) error {
	switch {
	case r.Stage == rule.StageMiss && (r.Offset != 0 || !r.Match.IsZero()):
		return fmt.Errorf("%w: a rule of stage %v matches everything at offset 0", ErrInvalid, r.Stage)
	case !r.Stage.Valid() && r.Stage != rule.StageMiss:
		return fmt.Errorf("%w: no stage is set", ErrInvalid)
	case r.Offset >= r.Stage.Width():
		return fmt.Errorf("%w: offset %d is beyond stage %v", ErrInvalid, r.Offset, r.Stage)
	case r.Goto != 0 && (r.Goto <= r.Table() || r.Goto > rule.TableRoute):
		return fmt.Errorf("%w: a rule of table %v cannot go on to table %v, only to a later one", ErrInvalid, r.Table(), r.Goto)
	case r.Stage == rule.StageClassify && (r.Meter != 0 || r.Idle != 0 || r.Hard != 0 || r.Leased || r.NotifyRemoved || r.Goto != 0):
		return fmt.Errorf("%w: a mark has actions, or none, and nothing else: no meter, timeouts, lease or way", ErrInvalid)
	case r.Leased && (r.Idle != 0 || r.Hard != 0):
		return fmt.Errorf("%w: a leased rule has no timeouts of its own", ErrInvalid)
	case r.Idle < 0 || r.Hard < 0 || max(r.Idle, r.Hard) > 0xffff*time.Second:
		return fmt.Errorf("%w: timeouts must lie between 0 and 65535 seconds", ErrInvalid)
	}
	return nil
}

func (c *Change) planRule(at place[rule.Key], r rule.Rule) error {
	s := c.l.stateOf(at.sw)
	old := s.rules[at.key]
	if old == nil {
		c.newRule(s, at, r)
		return nil
	}
	if old.owner != c.owner {
		return fmt.Errorf("%w: held by owner %q under key %q", ErrConflict, old.owner.Name, old.keys[0])
	}
	mine := slices.Contains(old.keys, c.key)
	if sameRule(&old.Rule, &r) {
		if !mine {
			shared := *old
			shared.keys = append(slices.Clone(old.keys), c.key)
			c.putRule(s, at, &shared)
		}
		if !old.Confirmed {
			c.Writes = s.appendWrite(c.Writes, old, openflow.FlowAdd)
		}
		return nil
	}
	if !mine || len(old.keys) > 1 {
		return fmt.Errorf("%w: declared differently under key %q", ErrConflict, old.keys[0])
	}
	e := &Entry{Rule: r, Cookie: old.Cookie, owner: c.owner, keys: []string{c.key}}
	c.putRule(s, at, e)
	c.Writes = s.appendWrite(c.Writes, e, replaceCommand(&old.Rule, &r))
	return nil
}

// replaceCommand returns the command that replaces a rule. FlowModifyStrict keeps the counters,
// but changes the effect only; a change of timeouts needs FlowAdd. With either of them
// packets match without interruption.
func replaceCommand(old, now *rule.Rule) uint8 {
	if seconds(old.Idle) == seconds(now.Idle) && seconds(old.HardTimeout()) == seconds(now.HardTimeout()) {
		return openflow.FlowModifyStrict
	}
	return openflow.FlowAdd
}

// newRule adds a rule that the ledger does not hold. If the switch already had the same rule
// before the controller's restart, newRule takes it over and sends nothing.
func (c *Change) newRule(s *switchState, at place[rule.Key], r rule.Rule) {
	e := &Entry{Rule: r, owner: c.owner, keys: []string{c.key}}
	want, ok := s.wanted(e)
	slot := s.layout.Slot(at.key)
	found := s.unclaimed[slot]
	if found != nil && ok {
		delete(s.unclaimed, slot)
		c.claimed = append(c.claimed, found)
	}
	if found != nil && ok && found.Cookie.Owner() == c.owner.Hash && found.equals(s.layout, want) {
		e.Cookie, e.Confirmed = found.Cookie, true
	} else {
		e.Cookie = c.l.cookie(c.owner)
		c.Writes = s.appendWrite(c.Writes, e, openflow.FlowAdd)
	}
	c.putRule(s, at, e)
}

func (c *Change) putRule(s *switchState, at place[rule.Key], e *Entry) {
	c.rules = append(c.rules, change[rule.Key, Entry]{at, s.rules[at.key], e})
	if e == nil {
		delete(s.rules, at.key)
		return
	}
	s.rules[at.key] = e
}

// planDeletes removes the rules, groups and meters that were declared under the key and no longer
// are.
func (c *Change) planDeletes(after *declared) {
	if c.before == nil {
		return
	}
	keep := make(map[place[rule.Key]]struct{}, len(after.rules))
	for _, at := range after.rules {
		keep[at] = struct{}{}
	}
	for _, at := range slices.Backward(c.before.rules) {
		if _, kept := keep[at]; !kept {
			c.dropRule(at)
		}
	}
	for _, at := range c.before.groups {
		if !slices.Contains(after.groups, at) {
			c.dropGroup(at)
		}
	}
	for _, at := range c.before.meters {
		if !slices.Contains(after.meters, at) {
			c.dropMeter(at)
		}
	}
}

func (c *Change) dropRule(at place[rule.Key]) {
	s := c.l.stateOf(at.sw)
	old := s.rules[at.key]
	if old == nil {
		return // it has timed out since
	}
	if len(old.keys) > 1 {
		less := *old
		less.keys = withoutKey(old.keys, c.key)
		c.putRule(s, at, &less)
		return
	}
	c.putRule(s, at, nil)
	if s.layout.Holds(&old.Rule) {
		c.Deletes = append(c.Deletes, s.remove(at.sw, s.layout.Slot(at.key), old.Cookie, &old.Rule))
	}
}

func withoutKey(keys []string, key string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == key })
}

// Confirm records that the switches have accepted all operations.
func (c *Change) Confirm() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.close()
	for _, ch := range c.rules {
		if e := c.l.stateOf(ch.sw).rules[ch.key]; e != nil && e == ch.new {
			e.Confirmed = true
		}
	}
	for _, ch := range c.groups {
		if ch.new != nil {
			ch.new.confirmed = true
		}
	}
	for _, ch := range c.meters {
		if ch.new != nil {
			ch.new.confirmed = true
		}
	}
	for _, ch := range c.rules {
		c.l.dropEmpty(ch.sw)
	}
}

// close ends the change: later comparisons include what it has changed.
func (c *Change) close() {
	c.l.exclude(c)
	delete(c.l.open, c)
}

// Restored records that the operations of Rollback were sent.
func (c *Change) Restored() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.close()
}

// Rollback restores what was declared before, and returns the operations that restore it in the
// switches, whichever part of the change has reached them.
func (c *Change) Rollback() []Op {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	var back, gone []Op // to be sent before and after the rules that need the items
	for _, ch := range c.meters {
		b, g := undoItem(ch, c.key, c.l.stateOf(ch.sw).meters, sameMeter, writeMeter, openflow.MeterAdd, openflow.MeterModify, openflow.MeterDelete)
		back, gone = append(back, b...), append(gone, g...)
	}
	for _, ch := range c.groups {
		b, g := undoItem(ch, c.key, c.l.stateOf(ch.sw).groups, sameGroup, writeGroup, openflow.GroupAdd, openflow.GroupModify, openflow.GroupDelete)
		back, gone = append(back, b...), append(gone, g...)
	}
	for _, ch := range slices.Backward(c.rules) {
		back = append(back, c.undoRule(ch)...)
	}
	for _, ch := range c.rules {
		if isMark(ch.key) {
			back = c.l.stateOf(ch.sw).rewritePath(back, ch.key, c.owner)
		}
	}
	c.restoreProgram()
	slices.Reverse(gone)
	return append(back, gone...)
}

// undoRule undoes the change of a rule: it removes the key from the rule, or restores the rule as it
// was before. Since the change was planned, other keys may have begun to share the rule, or have
// given it up.
func (c *Change) undoRule(ch change[rule.Key, Entry]) []Op {
	s := c.l.stateOf(ch.sw)
	now := s.rules[ch.key]
	had := ch.old != nil && slices.Contains(ch.old.keys, c.key)
	var others []string
	if now != nil {
		others = withoutKey(now.keys, c.key)
	}
	switch {
	case len(others) > 0:
		if now.keys = others; had {
			now.keys = append(now.keys, c.key)
		}
		return nil
	case !had && now == nil:
		return nil
	case !had:
		delete(s.rules, ch.key)
		return c.undoNewRule(s, ch)
	case now == nil && ch.new != nil && (ch.new.Rule.Idle > 0 || ch.new.Rule.Hard > 0):
		return nil // it has timed out since
	}
	back := *ch.old
	back.keys = []string{c.key}
	s.rules[ch.key] = &back
	switch {
	case now == nil: // with the old cookie, a late notice of the deletion would be taken for this rule's
		back.Cookie = c.l.cookie(c.owner)
	case sameRule(&ch.old.Rule, &now.Rule):
		return nil
	}
	return s.appendWrite(nil, &back, openflow.FlowAdd)
}

// undoNewRule removes a rule that the change has added. If the switch had this or another rule in
// the same slot from before a restart, undoNewRule restores that rule until its owner is ready.
func (c *Change) undoNewRule(s *switchState, ch change[rule.Key, Entry]) []Op {
	for _, r := range c.claimed {
		o := c.l.owners[r.Cookie.Owner()]
		if r.Switch != ch.sw || r.Slot != s.layout.Slot(ch.key) || o == nil || o.ready {
			continue
		}
		s.unclaimed[r.Slot] = r
		if r.Cookie == ch.new.Cookie {
			return nil
		}
		return []Op{writeReported(s.layout, r)}
	}
	if !s.layout.Holds(&ch.new.Rule) {
		return nil
	}
	return []Op{s.remove(ch.sw, s.layout.Slot(ch.key), ch.new.Cookie, &ch.new.Rule)}
}

// undoPlan undoes a plan of which nothing was sent.
func (c *Change) undoPlan() {
	for _, ch := range slices.Backward(c.rules) {
		setOrDelete(c.l.stateOf(ch.sw).rules, ch.key, ch.old)
	}
	for _, ch := range slices.Backward(c.groups) {
		setOrDelete(c.l.stateOf(ch.sw).groups, ch.key, ch.old)
	}
	for _, ch := range slices.Backward(c.meters) {
		setOrDelete(c.l.stateOf(ch.sw).meters, ch.key, ch.old)
	}
	for _, r := range c.claimed {
		c.l.stateOf(r.Switch).unclaimed[r.Slot] = r
	}
	c.restoreProgram()
}

func (c *Change) restoreProgram() {
	if c.before == nil {
		delete(c.owner.programs, c.key)
		return
	}
	c.owner.programs[c.key] = c.before
}

func setOrDelete[K comparable, T any](m map[K]*T, k K, v *T) {
	if v == nil {
		delete(m, k)
		return
	}
	m[k] = v
}

package ledger

import (
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// wanted returns a rule in the form that the switch is to have: on a switch with one table, a
// path's rule includes the actions of its mark. It returns false if the switch is to have no
// entry for the rule.
func (s *switchState) wanted(e *Entry) (*rule.Rule, bool) {
	switch {
	case !s.layout.Holds(&e.Rule):
		return nil, false
	case s.layout.Tables() || e.Rule.Stage != rule.StageWay:
		return &e.Rule, true
	}
	mark := s.rules[rule.MarkOf(e.Rule.Key())]
	if mark == nil || mark.owner != e.owner {
		return &e.Rule, true
	}
	r := rule.Marked(&e.Rule, &mark.Rule)
	return &r, true
}

// at returns the entry that the switch should have in a slot, or nil.
func (s *switchState) at(slot rule.Slot) *Entry {
	k, ok := s.layout.Key(slot)
	if !ok {
		return nil
	}
	if e := s.rules[k]; e != nil && s.layout.Holds(&e.Rule) {
		return e
	}
	return nil
}

// write returns the operation that writes an entry, and whether there is anything to write.
func (s *switchState) write(e *Entry, command uint8) (Op, bool) {
	r, ok := s.wanted(e)
	if !ok {
		return Op{}, false
	}
	m := flowMod(s.layout, r, command)
	m.Cookie = uint64(e.Cookie)
	return Op{Switch: r.Switch, Message: m, Rule: &e.Rule, Layout: s.layout}, true
}

// appendWrite appends the operation that writes an entry, if there is one.
func (s *switchState) appendWrite(ops []Op, e *Entry, command uint8) []Op {
	if op, ok := s.write(e, command); ok {
		return append(ops, op)
	}
	return ops
}

// remove returns the operation that deletes the entry in a slot. r is the rule, nil for one that
// the ledger does not hold.
func (s *switchState) remove(sw openflow.DatapathID, at rule.Slot, c rule.Cookie, r *rule.Rule) Op {
	m := openflow.NewFlowMod(openflow.FlowDeleteStrict, at.Table, at.Priority, at.Match)
	m.Cookie, m.CookieMask = uint64(c), ^uint64(0)
	return Op{Switch: sw, Message: m, Rule: r, Layout: s.layout}
}

// rewritePath appends the operation that writes the path's rule again after its mark was added,
// changed or removed. Only switches with one table need it. It replaces the path's entry by a
// copy, so that a concurrent reconciliation notices the change.
func (s *switchState) rewritePath(ops []Op, mark rule.Key, owner *Owner) []Op {
	path := rule.WayOf(mark)
	e := s.rules[path]
	if s.layout.Tables() || e == nil || e.owner != owner {
		return ops
	}
	again := *e
	s.rules[path] = &again
	return s.appendWrite(ops, &again, openflow.FlowModifyStrict)
}

// planMarkedPaths plans to write the paths whose marks have changed. If a path is to be written
// anyway, its message may have been made before a mark was removed, and is made again.
func (c *Change) planMarkedPaths() {
	written := make(map[*rule.Rule]int, len(c.Writes))
	for i, op := range c.Writes {
		written[op.Rule] = i
	}
	for _, ch := range c.rules {
		if !isMark(ch.key) {
			continue
		}
		s := c.l.stateOf(ch.sw)
		path := s.rules[rule.WayOf(ch.key)]
		if path == nil {
			continue
		}
		if i, ok := written[&path.Rule]; ok {
			c.Writes[i], _ = s.write(path, c.Writes[i].Message.(*openflow.FlowMod).Command)
		} else {
			c.Writes = s.rewritePath(c.Writes, ch.key, c.owner)
		}
	}
}

// isMark reports whether a key is that of a mark.
func isMark(k rule.Key) bool { return k.Table == rule.TableClassify && k.Priority > 0 }

// flowMod returns the flow-mod of a rule.
func flowMod(l rule.Layout, r *rule.Rule, command uint8) *openflow.FlowMod {
	m := openflow.NewFlowMod(command, l.Number(r.Table()), r.Priority(), r.Match, Instructions(l, r)...)
	m.IdleTimeout, m.HardTimeout = seconds(r.Idle), seconds(r.HardTimeout())
	m.Flags = flags
	return m
}

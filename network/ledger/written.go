package ledger

import (
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// written is a rule as the switch is to have it: in one table a way has the actions of its
// mark too. It is false if the switch is to have no entry for it.
func (s *state) written(e *Entry) (*rule.Rule, bool) {
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

// at is the entry that stands somewhere in the switch, nil if none is to.
func (s *state) at(slot rule.Slot) *Entry {
	k, ok := s.layout.Key(slot)
	if !ok {
		return nil
	}
	if e := s.rules[k]; e != nil && s.layout.Holds(&e.Rule) {
		return e
	}
	return nil
}

// write is the operation that writes an entry; false if there is nothing to write.
func (s *state) write(e *Entry, command uint8) (Op, bool) {
	r, held := s.written(e)
	if !held {
		return Op{}, false
	}
	m := flowMod(s.layout, r, command)
	m.Cookie = uint64(e.Cookie)
	return Op{Switch: r.Switch, Message: m, Rule: &e.Rule, Layout: s.layout}, true
}

// appendWrite appends the operation that writes an entry, if there is one.
func (s *state) appendWrite(ops []Op, e *Entry, command uint8) []Op {
	if op, held := s.write(e, command); held {
		return append(ops, op)
	}
	return ops
}

// remove is the operation that deletes what stands somewhere. r is the rule, nil for one
// that the ledger does not hold.
func (s *state) remove(sw openflow.DatapathID, at rule.Slot, c rule.Cookie, r *rule.Rule) Op {
	m := openflow.NewFlowMod(openflow.FlowDeleteStrict, at.Table, at.Priority, at.Match)
	m.Cookie, m.CookieMask = uint64(c), ^uint64(0)
	return Op{Switch: sw, Message: m, Rule: r, Layout: s.layout}
}

// marked has the way written anew to which a mark belongs that has come, changed or gone.
// Only in one table is that a thing to do. The way is another entry from then on, so that
// whoever is just writing it finds out.
func (s *state) marked(ops []Op, mark rule.Key, owner *Owner) []Op {
	way := rule.WayOf(mark)
	e := s.rules[way]
	if s.layout.Tables() || e == nil || e.owner != owner {
		return ops
	}
	anew := *e
	s.rules[way] = &anew
	return s.appendWrite(ops, &anew, openflow.FlowModifyStrict)
}

// planMarked has ways written whose marks have changed. What is to be written of them anyway
// may have been made before a mark was taken out, and is made again.
func (c *Change) planMarked() {
	written := make(map[*rule.Rule]int, len(c.Writes))
	for i, op := range c.Writes {
		written[op.Rule] = i
	}
	for _, ch := range c.rules {
		if !isMark(ch.key) {
			continue
		}
		s := c.l.state(ch.sw)
		way := s.rules[rule.WayOf(ch.key)]
		if way == nil {
			continue
		}
		if i, is := written[&way.Rule]; is {
			c.Writes[i], _ = s.write(way, c.Writes[i].Message.(*openflow.FlowMod).Command)
		} else {
			c.Writes = s.marked(c.Writes, ch.key, c.owner)
		}
	}
}

// isMark says whether a key is a mark's.
func isMark(k rule.Key) bool { return k.Table == rule.TableClassify && k.Priority > 0 }

// flowMod is the message about a rule.
func flowMod(l rule.Layout, r *rule.Rule, command uint8) *openflow.FlowMod {
	m := openflow.NewFlowMod(command, l.Number(r.Table()), r.Priority(), r.Match, Instructions(l, r)...)
	m.IdleTimeout, m.HardTimeout = seconds(r.Idle), seconds(r.HardTimeout())
	m.Flags = flags(r)
	return m
}

package ledger

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

func (c *Change) planGroups(after *declared, groups []rule.Group) error {
	for i := range groups {
		g := groups[i]
		at := place[uint32]{g.Switch, g.ID}
		if g.ID > openflow.GroupMax {
			return &RuleError{Switch: g.Switch, Err: fmt.Errorf("%w: group %#x is beyond the highest number", ErrInvalid, g.ID)}
		}
		if slices.Contains(after.groups, at) {
			return &RuleError{Switch: g.Switch, Err: fmt.Errorf("%w: the program has group %#x twice", ErrInvalid, g.ID)}
		}
		s := c.l.stateOf(g.Switch)
		now, command, err := planItem(c, s.groups[g.ID], g, sameGroup, "group", g.ID, openflow.GroupAdd, openflow.GroupModify)
		if err != nil {
			return &RuleError{Switch: g.Switch, Err: err}
		}
		if now != nil {
			c.groups = append(c.groups, change[uint32, item[rule.Group]]{at, s.groups[g.ID], now})
			s.groups[g.ID] = now
		}
		if command != noCommand {
			c.Writes = append(c.Writes, writeGroup(&g, command))
		}
		after.groups = append(after.groups, at)
	}
	return nil
}

func (c *Change) planMeters(after *declared, meters []rule.Meter) error {
	for i := range meters {
		m := meters[i]
		at := place[uint32]{m.Switch, m.ID}
		if m.ID == 0 || m.ID > openflow.MeterMax {
			return &RuleError{Switch: m.Switch, Err: fmt.Errorf("%w: meter %d: numbers run from 1 to %#x", ErrInvalid, m.ID, openflow.MeterMax)}
		}
		if slices.Contains(after.meters, at) {
			return &RuleError{Switch: m.Switch, Err: fmt.Errorf("%w: the program has meter %d twice", ErrInvalid, m.ID)}
		}
		s := c.l.stateOf(m.Switch)
		now, command, err := planItem(c, s.meters[m.ID], m, sameMeter, "meter", m.ID, openflow.MeterAdd, openflow.MeterModify)
		if err != nil {
			return &RuleError{Switch: m.Switch, Err: err}
		}
		if now != nil {
			c.meters = append(c.meters, change[uint32, item[rule.Meter]]{at, s.meters[m.ID], now})
			s.meters[m.ID] = now
		}
		if command != noCommand {
			c.Writes = append(c.Writes, writeMeter(&m, command))
		}
		after.meters = append(after.meters, at)
	}
	return nil
}

// noCommand means that nothing has to be sent.
const noCommand uint16 = 0xffff

// planItem decides what happens to a group or meter. It returns the new item, nil if the item
// stays as it is, and the command to send, or noCommand.
func planItem[T any](c *Change, old *item[T], v T, same func(a, b *T) bool, kind string, id uint32, add, modify uint16) (*item[T], uint16, error) {
	if old == nil {
		return &item[T]{value: v, owner: c.owner, keys: []string{c.key}}, add, nil
	}
	if old.owner == nil { // found on the switch after a restart
		now := &item[T]{value: v, owner: c.owner, keys: []string{c.key}, confirmed: true}
		if same(&old.value, &v) {
			return now, noCommand, nil
		}
		return now, modify, nil
	}
	if old.owner != c.owner {
		return nil, noCommand, fmt.Errorf("%w: %s %#x is held by owner %q", ErrConflict, kind, id, old.owner.Name)
	}
	mine := slices.Contains(old.keys, c.key)
	switch equal := same(&old.value, &v); {
	case equal && mine:
		return nil, noCommand, nil
	case equal:
		return &item[T]{value: v, owner: c.owner, keys: append(slices.Clone(old.keys), c.key), confirmed: old.confirmed}, noCommand, nil
	case mine && len(old.keys) == 1:
		return &item[T]{value: v, owner: c.owner, keys: old.keys}, modify, nil
	default:
		return nil, noCommand, fmt.Errorf("%w: %s %#x is declared differently under key %q", ErrConflict, kind, id, old.keys[0])
	}
}

func (c *Change) dropGroup(at place[uint32]) {
	s := c.l.stateOf(at.sw)
	old := s.groups[at.key]
	if old == nil {
		return
	}
	now, gone := dropItem(old, c.key)
	c.groups = append(c.groups, change[uint32, item[rule.Group]]{at, old, now})
	setOrDelete(s.groups, at.key, now)
	if gone {
		c.Deletes = append(c.Deletes, writeGroup(&old.value, openflow.GroupDelete))
	}
}

func (c *Change) dropMeter(at place[uint32]) {
	s := c.l.stateOf(at.sw)
	old := s.meters[at.key]
	if old == nil {
		return
	}
	now, gone := dropItem(old, c.key)
	c.meters = append(c.meters, change[uint32, item[rule.Meter]]{at, old, now})
	setOrDelete(s.meters, at.key, now)
	if gone {
		c.Deletes = append(c.Deletes, writeMeter(&old.value, openflow.MeterDelete))
	}
}

func dropItem[T any](old *item[T], key string) (now *item[T], gone bool) {
	if len(old.keys) == 1 {
		return nil, true
	}
	return &item[T]{value: old.value, owner: old.owner, keys: withoutKey(old.keys, key), confirmed: old.confirmed}, false
}

// undoItem undoes the change of a group or meter. It removes the key from the item, or restores the
// item as it was before. It returns the operations to send before the rules that need the item, and
// those to send after them.
func undoItem[T any](ch change[uint32, item[T]], key string, m map[uint32]*item[T], same func(a, b *T) bool, write func(*T, uint16) Op, add, modify, remove uint16) (before, after []Op) {
	now := m[ch.key]
	had := ch.old != nil && (ch.old.owner == nil || slices.Contains(ch.old.keys, key))
	var others []string
	if now != nil {
		others = withoutKey(now.keys, key)
	}
	switch {
	case len(others) > 0:
		if now.keys = others; had && ch.old.owner != nil {
			now.keys = append(now.keys, key)
		}
		return nil, nil
	case !had:
		delete(m, ch.key)
		if now == nil {
			return nil, nil
		}
		return nil, []Op{write(&now.value, remove)}
	}
	back := *ch.old
	if back.owner != nil {
		back.keys = []string{key}
	}
	m[ch.key] = &back
	switch {
	case now == nil:
		return []Op{write(&back.value, add)}, nil
	case same(&back.value, &now.value):
		return nil, nil
	}
	return []Op{write(&back.value, modify)}, nil
}

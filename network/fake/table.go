package fake

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// FlowTable is the data path of a switch: flow tables, groups and meters. It is safe for
// concurrent use.
type FlowTable struct {
	mu     sync.Mutex
	clock  func() time.Time
	flows  []*Entry
	index  *matchIndex // index of flows; nil when it has to be rebuilt
	groups map[uint32]*groupEntry
	meters map[uint32]*openflow.MeterMod
	limit  int
}

// Entry is a flow entry.
type Entry struct {
	openflow.FlowMod
	Packets, Bytes uint64
	Added, Used    time.Time
}

// Removed is an entry that has left the table, and the reason.
type Removed struct {
	Entry
	Reason uint8
}

// MaxEntries is the default limit of a table's entries.
const MaxEntries = 1 << 20

// NewFlowTable returns an empty table. A nil clock means time.Now.
func NewFlowTable(clock func() time.Time) *FlowTable {
	if clock == nil {
		clock = time.Now
	}
	return &FlowTable{clock: clock, groups: map[uint32]*groupEntry{}, meters: map[uint32]*openflow.MeterMod{}, limit: MaxEntries}
}

// SetLimit limits the number of entries. Further additions fail with "table full".
func (t *FlowTable) SetLimit(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit = n
}

// Limit returns the largest number of entries.
func (t *FlowTable) Limit() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limit
}

// Entries returns the entries, table by table, highest priority first.
func (t *FlowTable) Entries() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Entry, len(t.flows))
	for i, e := range t.flows {
		out[i] = *e
	}
	slices.SortStableFunc(out, func(a, b Entry) int {
		if a.Table != b.Table {
			return int(a.Table) - int(b.Table)
		}
		return int(b.Priority) - int(a.Priority)
	})
	return out
}

// Flow applies a flow modification. It returns the deleted entries and, if the switch would
// refuse the message, the error.
func (t *FlowTable) Flow(m *openflow.FlowMod) ([]Removed, *openflow.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m.Command {
	case openflow.FlowAdd:
		return t.add(m)
	case openflow.FlowModify, openflow.FlowModifyStrict:
		if code, bad := t.checkReferences(m); bad {
			return nil, &openflow.Error{Code: code}
		}
		for _, e := range t.selectEntries(m) {
			e.Instructions = m.Instructions
			if m.Flags&openflow.FlagResetCounts != 0 {
				e.Packets, e.Bytes = 0, 0
			}
		}
		return nil, nil
	default:
		return t.remove(m), nil
	}
}

func (t *FlowTable) add(m *openflow.FlowMod) ([]Removed, *openflow.Error) {
	if m.Table > openflow.TableMax {
		return nil, &openflow.Error{Code: openflow.FlowModBadTable}
	}
	if code, bad := t.checkReferences(m); bad {
		return nil, &openflow.Error{Code: code}
	}
	now := t.clock()
	e := &Entry{FlowMod: *m, Added: now, Used: now}
	e.Command = 0
	for _, old := range t.flows {
		if old.Table == m.Table && old.Priority == m.Priority && old.Match == m.Match {
			if m.Flags&openflow.FlagResetCounts == 0 {
				e.Packets, e.Bytes = old.Packets, old.Bytes
			}
			*old = *e
			return nil, nil
		}
		if m.Flags&openflow.FlagCheckOverlap != 0 && old.Table == m.Table && old.Priority == m.Priority && overlap(old.Match, m.Match) {
			return nil, &openflow.Error{Code: openflow.FlowModOverlap}
		}
	}
	if len(t.flows) >= t.limit {
		return nil, &openflow.Error{Code: openflow.FlowModTableFull}
	}
	t.flows = append(t.flows, e)
	if t.index != nil {
		t.index.insert(e)
	}
	return nil, nil
}

// overlap reports whether a packet can match both matches.
func overlap(a, b openflow.Match) bool {
	for x := range a.Fields() {
		y, ok := b.Get(x.Field)
		if !ok {
			continue
		}
		for i := range x.Value {
			mask := byte(0xff)
			if x.Masked {
				mask &= x.Mask[i]
			}
			if y.Masked {
				mask &= y.Mask[i]
			}
			if (x.Value[i]^y.Value[i])&mask != 0 {
				return false
			}
		}
	}
	return true
}

// checkReferences reports whether a flow modification refers to a missing group or meter, and
// returns the error's code.
func (t *FlowTable) checkReferences(m *openflow.FlowMod) (openflow.ErrorCode, bool) {
	for _, in := range m.Instructions {
		if in.Type == openflow.InstructionMeter && t.meters[in.Meter] == nil {
			return openflow.MeterModUnknown, true
		}
		for _, a := range in.Actions {
			if a.Type == openflow.ActionGroup && t.groups[a.Arg] == nil {
				return openflow.NewErrorCode(openflow.ErrorTypeBadAction, 9), true // OFPBAC_BAD_OUT_GROUP
			}
		}
	}
	return 0, false
}

// selectEntries returns the entries that a modification or deletion applies to.
func (t *FlowTable) selectEntries(m *openflow.FlowMod) []*Entry {
	strict := m.Command == openflow.FlowModifyStrict || m.Command == openflow.FlowDeleteStrict
	deletes := m.Command == openflow.FlowDelete || m.Command == openflow.FlowDeleteStrict
	var out []*Entry
	for _, e := range t.flows {
		switch {
		case e.Table != m.Table && !(deletes && m.Table == openflow.TableAll),
			strict && (e.Priority != m.Priority || e.Match != m.Match),
			!strict && !m.Match.Covers(e.Match),
			(e.Cookie^m.Cookie)&m.CookieMask != 0,
			deletes && m.OutPort != openflow.PortAny && !e.uses(openflow.ActionOutput, m.OutPort),
			deletes && m.OutGroup != openflow.GroupAny && !e.uses(openflow.ActionGroup, m.OutGroup):
			continue
		}
		out = append(out, e)
	}
	return out
}

// uses reports whether the entry outputs to a port or group.
func (e *Entry) uses(kind openflow.ActionType, arg uint32) bool {
	for _, in := range e.Instructions {
		for _, a := range in.Actions {
			if a.Type == kind && a.Arg == arg {
				return true
			}
		}
	}
	return false
}

// passes reports whether packets of the entry pass a meter.
func (e *Entry) passes(meter uint32) bool {
	return slices.ContainsFunc(e.Instructions, func(in openflow.Instruction) bool {
		return in.Type == openflow.InstructionMeter && in.Meter == meter
	})
}

func (t *FlowTable) remove(m *openflow.FlowMod) []Removed {
	gone := t.selectEntries(m)
	t.index = nil
	t.flows = slices.DeleteFunc(t.flows, func(e *Entry) bool { return slices.Contains(gone, e) })
	out := make([]Removed, len(gone))
	for i, e := range gone {
		out[i] = Removed{*e, openflow.RemovedDelete}
	}
	return out
}

// Expire removes the entries whose timeout has passed.
func (t *FlowTable) Expire() []Removed {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	var out []Removed
	t.index = nil
	t.flows = slices.DeleteFunc(t.flows, func(e *Entry) bool {
		switch {
		case e.HardTimeout > 0 && now.Sub(e.Added) >= time.Duration(e.HardTimeout)*time.Second:
			out = append(out, Removed{*e, openflow.RemovedHard})
		case e.IdleTimeout > 0 && now.Sub(e.Used) >= time.Duration(e.IdleTimeout)*time.Second:
			out = append(out, Removed{*e, openflow.RemovedIdle})
		default:
			return false
		}
		return true
	})
	return out
}

// Stats returns the statistics of the entries that a request selects.
func (t *FlowTable) Stats(f openflow.FlowFilter) []openflow.FlowStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &openflow.FlowMod{
		Command: openflow.FlowDelete, Table: f.Table, OutPort: f.OutPort, OutGroup: f.OutGroup,
		Cookie: f.Cookie, CookieMask: f.CookieMask, Match: f.Match,
	}
	now := t.clock()
	var out []openflow.FlowStats
	for _, e := range t.selectEntries(m) {
		age := now.Sub(e.Added)
		out = append(out, openflow.FlowStats{
			Table: e.Table, Priority: e.Priority, IdleTimeout: e.IdleTimeout, HardTimeout: e.HardTimeout, Flags: e.Flags,
			Duration: openflow.Duration{Sec: uint32(age / time.Second), Nsec: uint32(age % time.Second)},
			Cookie:   e.Cookie, Packets: e.Packets, Bytes: e.Bytes, Match: e.Match, Instructions: e.Instructions,
		})
	}
	return out
}

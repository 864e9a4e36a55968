package rule

import (
	"fmt"

	"github.com/sluice-net/sluice/openflow"
)

// Layout holds the numbers of the pipeline's tables in one switch. The zero value is for a
// switch whose tables are not known yet; its rules have the form for one table.
type Layout struct {
	known, tables bool
	numbers       [NumTables]uint8
}

// OneTable is the layout of a switch that has all stages in table 0.
var OneTable = Layout{known: true}

// NewLayout returns the layout with these table numbers. Packets begin in table 0 and go on to
// higher tables only, so the numbers begin with 0 and rise.
func NewLayout(classify, service, route uint8) (Layout, error) {
	if classify != 0 || service <= classify || route <= service || route > openflow.TableMax {
		return Layout{}, fmt.Errorf("tables classify %d, service %d, route %d: packets begin in table 0 and go on to higher ones only: classify is 0, service above it, route above that and at most %d",
			classify, service, route, openflow.TableMax)
	}
	return Layout{true, true, [NumTables]uint8{classify, service, route}}, nil
}

// String returns the numbers of the tables in words.
func (l Layout) String() string {
	switch {
	case !l.known:
		return "unknown"
	case !l.tables:
		return "one table"
	}
	return fmt.Sprintf("classify %d, service %d, route %d", l.numbers[TableClassify], l.numbers[TableService], l.numbers[TableRoute])
}

// Known reports whether the switch's tables are known.
func (l Layout) Known() bool { return l.known }

// Tables reports whether the pipeline has several tables in the switch.
func (l Layout) Tables() bool { return l.tables }

// Number returns a table's number in the switch.
func (l Layout) Number(t Table) uint8 { return l.numbers[t] }

// Slot identifies a flow entry in a switch.
type Slot struct {
	Table    uint8 // number of the table
	Priority uint16
	Match    openflow.Match
}

// Slot returns the slot in the switch of the rule with this key.
func (l Layout) Slot(k Key) Slot { return Slot{l.numbers[k.Table], k.Priority, k.Match} }

// Key returns the key of a rule with this slot in the switch, and false if no rule of Sluice can
// have the slot.
func (l Layout) Key(s Slot) (Key, bool) {
	stage, _, ok := OfPriority(s.Priority)
	k := Key{Table: stage.Table(), Priority: s.Priority, Match: s.Match}
	if ok = ok || s.Priority == 0; ok && stage == StageMiss && l.tables {
		k.Table, ok = l.Table(s.Table)
	}
	return k, ok && l.numbers[k.Table] == s.Table
}

// Table returns the table with this number, the last one if all tables have the same number.
func (l Layout) Table(number uint8) (Table, bool) {
	for t := TableRoute; ; t-- {
		if l.numbers[t] == number {
			return t, true
		}
		if t == 0 {
			return 0, false
		}
	}
}

// Holds reports whether the switch has an entry for the rule. A switch with one table has no rules
// that lead to another table. A mark (a rule of StageClassify) has no entry there either: its
// actions are part of the rule of the path that it belongs to.
func (l Layout) Holds(r *Rule) bool { return l.tables || r.Next() == 0 }

// Next returns the number of the table to which a rule sends packets on, or zero.
func (l Layout) Next(r *Rule) uint8 {
	if r.Next() == 0 {
		return 0
	}
	return l.numbers[r.Next()]
}

// Marked returns the rule of a path together with its mark, in the form for a switch with one
// table: the actions of the mark come before those of the path's rule.
func Marked(way, mark *Rule) Rule {
	both := *way
	both.Actions = append(append([]openflow.Action(nil), mark.Actions...), way.Actions...)
	return both
}

// MarkOf returns the key of the mark that belongs to a path's rule. Both match the same packets
// and have the same offset in their stages.
func MarkOf(way Key) Key { return counterpart(way, StageWay, StageClassify) }

// WayOf returns the key of the path's rule that a mark belongs to. It is the inverse of MarkOf.
func WayOf(mark Key) Key { return counterpart(mark, StageClassify, StageWay) }

func counterpart(k Key, from, to Stage) Key {
	return Key{Table: to.Table(), Priority: k.Priority - from.Base() + to.Base(), Match: k.Match}
}

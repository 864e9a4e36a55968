package rule

import (
	"fmt"

	"github.com/sluice-net/sluice/openflow"
)

// Layout says where the pipeline's tables stand in one switch. The zero value stands for a
// switch of which that is not known yet; what is wanted there has the form of one table.
type Layout struct {
	known, tables bool
	numbers       [NumTables]uint8
}

// OneTable has all stages in table 0.
var OneTable = Layout{known: true}

// NewLayout gives each table of the pipeline its number. Packets begin in table 0 and go on
// to higher ones only, so the numbers begin with 0 and rise.
func NewLayout(classify, service, route uint8) (Layout, error) {
	if classify != 0 || service <= classify || route <= service || route > openflow.TableMax {
		return Layout{}, fmt.Errorf("tables classify %d, service %d, route %d: packets begin in table 0 and go on to higher ones only: classify is 0, service above it, route above that and at most %d",
			classify, service, route, openflow.TableMax)
	}
	return Layout{true, true, [NumTables]uint8{classify, service, route}}, nil
}

// String names the numbers of the tables.
func (l Layout) String() string {
	switch {
	case !l.known:
		return "unknown"
	case !l.tables:
		return "one table"
	}
	return fmt.Sprintf("classify %d, service %d, route %d", l.numbers[TableClassify], l.numbers[TableService], l.numbers[TableRoute])
}

// Known reports whether it is known what the switch has.
func (l Layout) Known() bool { return l.known }

// Tables reports whether the pipeline has tables of its own there.
func (l Layout) Tables() bool { return l.tables }

// Number is a table's number in the switch.
func (l Layout) Number(t Table) uint8 { return l.numbers[t] }

// Slot is what makes a flow entry unique in a switch.
type Slot struct {
	Table    uint8 // its number
	Priority uint16
	Match    openflow.Match
}

// Slot is where a rule of that key stands in the switch.
func (l Layout) Slot(k Key) Slot { return Slot{l.numbers[k.Table], k.Priority, k.Match} }

// Key is the key of a rule that stands there. It is false where no rule of ours belongs.
func (l Layout) Key(s Slot) (Key, bool) {
	stage, _, ok := OfPriority(s.Priority)
	k := Key{Table: stage.Table(), Priority: s.Priority, Match: s.Match}
	if ok = ok || s.Priority == 0; ok && stage == StageMiss && l.tables {
		k.Table, ok = l.Table(s.Table)
	}
	return k, ok && l.numbers[k.Table] == s.Table
}

// Table is the table of a number. Where there is one only, that is the last.
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

// Holds reports whether the switch has an entry for the rule. In one table nothing goes on
// to another: the effect of a mark is that of the way that it belongs to.
func (l Layout) Holds(r *Rule) bool { return l.tables || r.Next() == 0 }

// Next is the number of the table that a rule goes on to, zero for none.
func (l Layout) Next(r *Rule) uint8 {
	if r.Next() == 0 {
		return 0
	}
	return l.numbers[r.Next()]
}

// Marked is the rule of a way that its owner has marked, for a switch with one table.
func Marked(way, mark *Rule) Rule {
	both := *way
	both.Actions = append(append([]openflow.Action(nil), mark.Actions...), way.Actions...)
	return both
}

// MarkOf is the key of the mark that belongs to a way; WayOf the other way round. Both
// match the same packets, at the same offset of their stages.
func MarkOf(way Key) Key { return counterpart(way, StageWay, StageClassify) }

// WayOf is the key of the way that a mark belongs to.
func WayOf(mark Key) Key { return counterpart(mark, StageClassify, StageWay) }

func counterpart(k Key, from, to Stage) Key {
	return Key{Table: to.Table(), Priority: k.Priority - from.Base() + to.Base(), Match: k.Match}
}

package network

import (
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// toldTables is what a switch says about its tables, by their numbers.
type toldTables map[uint8]openflow.TableFeatures

// layout finds the pipeline's tables: the first three that have room and lead to each other.
// A switch that does not have them has one table.
func (t toldTables) layout() rule.Layout {
	if !t.room(0) {
		return rule.OneTable
	}
	numbers := []uint8{0}
	for n := uint8(1); n <= openflow.TableMax && len(numbers) < rule.NumTables; n++ {
		if t.room(n) && t.leads(numbers[len(numbers)-1], n) {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) < rule.NumTables {
		return rule.OneTable
	}
	l, err := rule.NewLayout(numbers[0], numbers[1], numbers[2])
	if err != nil {
		return rule.OneTable
	}
	return l
}

// HasTables reports whether the pipeline has tables of its own in a switch: rules can have
// packets go on to a later one. It is false for a switch that is not there.
func (n *Network) HasTables(d openflow.DatapathID) bool {
	s, ok := n.Switch(d)
	return ok && s.layout.Tables()
}

// room reports whether a table takes rules.
func (t toldTables) room(n uint8) bool { return t[n].MaxEntries > 0 }

// leads reports whether rules of a table can send packets on to another one.
func (t toldTables) leads(from, to uint8) bool {
	for _, f := range t[from].Features {
		if f.Type == openflow.TableNextTables {
			return slices.Contains(f.Tables, to)
		}
	}
	return false
}

// fields are those that rules can write and match in every table of the pipeline. What is not
// said of a table is taken to be possible.
func (t toldTables) fields(l rule.Layout) (set, match fieldSet) {
	set, match = allFields()
	for _, table := range []rule.Table{rule.TableClassify, rule.TableService, rule.TableRoute} {
		f, told := t[l.Number(table)]
		if !told {
			continue
		}
		match &= fieldsOf(&f, openflow.TableMatch)
		if table != rule.TableClassify || !l.Tables() { // marks write no addresses
			set &= fieldsOf(&f, openflow.TableApplySetField)
		}
	}
	return set, match
}

func fieldsOf(t *openflow.TableFeatures, p openflow.TableProperty) (set fieldSet) {
	for _, f := range t.Fields(p) {
		set.add(f)
	}
	return set
}

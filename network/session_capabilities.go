package network

import (
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Capabilities describes what a switch can do. The zero value can do nothing.
type Capabilities struct {
	// Bundles reports whether changes of the switch can be atomic.
	Bundles bool
	// Tables is the number of flow tables.
	Tables int

	set, match fieldSet
}

type fieldSet uint64

func (f fieldSet) has(x openflow.Field) bool { return x < 64 && f&(1<<x) != 0 }
func (f *fieldSet) add(x openflow.Field)     { *f |= 1 << x }

// CanSet reports whether a rule can write the field.
func (c Capabilities) CanSet(f openflow.Field) bool { return c.set.has(f) }

// CanMatch reports whether a rule can match the field.
func (c Capabilities) CanMatch(f openflow.Field) bool { return c.match.has(f) }

// allFields returns the fields that a switch is assumed to support if it does not report any.
func allFields() (set, match fieldSet) {
	for f := openflow.Field(0); f.Valid(); f++ {
		match.add(f)
		if f.Settable() {
			set.add(f)
		}
	}
	return set, match
}

// restrict applies the operator's override.
func (c *Capabilities) restrict(o Override) {
	if o.NoBundles {
		c.Bundles = false
	}
	if o.FullRewrite {
		c.set, _ = allFields()
	}
	if !o.L2Rewrite {
		return
	}
	var l2 fieldSet
	for _, f := range []openflow.Field{openflow.FieldEthDst, openflow.FieldEthSrc, openflow.FieldVLANVID, openflow.FieldVLANPCP} {
		l2.add(f)
	}
	c.set &= l2
}

// reportedTables holds the features that a switch reports for its tables, by their numbers.
type reportedTables map[uint8]openflow.TableFeatures

// layout returns the numbers of the pipeline's tables: the first three tables that take rules and
// lead to each other, or a single table if there are no such three.
func (t reportedTables) layout() rule.Layout {
	if !t.hasRoom(0) {
		return rule.OneTable
	}
	numbers := []uint8{0}
	for n := uint8(1); n <= openflow.TableMax && len(numbers) < rule.NumTables; n++ {
		if t.hasRoom(n) && t.leadsTo(numbers[len(numbers)-1], n) {
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

// hasRoom reports whether a table takes rules.
func (t reportedTables) hasRoom(n uint8) bool { return t[n].MaxEntries > 0 }

// leadsTo reports whether rules of a table can send packets on to another one.
func (t reportedTables) leadsTo(from, to uint8) bool {
	for _, f := range t[from].Features {
		if f.Type == openflow.TableNextTables {
			return slices.Contains(f.Tables, to)
		}
	}
	return false
}

// fields returns the fields that rules can write and match in every table of the pipeline. A table
// without a report is assumed to support all.
func (t reportedTables) fields(l rule.Layout) (set, match fieldSet) {
	set, match = allFields()
	for _, table := range []rule.Table{rule.TableClassify, rule.TableService, rule.TableRoute} {
		f, reported := t[l.Number(table)]
		if !reported {
			continue
		}
		match &= fieldsOf(&f, openflow.TableMatch)
		if table != rule.TableClassify || !l.Tables() { // rules of TableClassify write no addresses
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

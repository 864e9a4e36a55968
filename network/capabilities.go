package network

import (
	"github.com/sluice-net/sluice/openflow"
)

// Capabilities are what a switch can do. The zero value can do nothing.
type Capabilities struct {
	// Bundles: changes of one switch can be made atomic.
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

// allFields is what a switch is taken to support that does not say.
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

package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/openflow"
)

// Packet is a packet as a set of match fields.
type Packet struct {
	fields map[openflow.Field][16]byte
	// TTL is the IP TTL or hop limit, for which there is no match field.
	TTL uint8
	// tags holds the identifiers of the VLAN tags below the outermost, innermost first.
	tags [][16]byte
}

// NewPacket returns a packet with these fields. It ignores masks.
func NewPacket(fields ...openflow.OXM) Packet {
	p := Packet{fields: map[openflow.Field][16]byte{}, TTL: 64}
	for _, o := range fields {
		p.fields[o.Field] = o.Value
	}
	return p
}

// Get returns a field of the packet.
func (p Packet) Get(f openflow.Field) (openflow.OXM, bool) {
	v, ok := p.fields[f]
	return openflow.OXM{Field: f, Value: v}, ok
}

// Has reports whether the packet has a field.
func (p Packet) Has(f openflow.Field) bool {
	_, ok := p.fields[f]
	return ok
}

// With returns a copy of the packet with a field set.
func (p Packet) With(o openflow.OXM) Packet {
	p.fields = maps.Clone(p.fields)
	if p.fields == nil {
		p.fields = map[openflow.Field][16]byte{}
	}
	p.fields[o.Field] = o.Value
	return p
}

func (p Packet) without(fs ...openflow.Field) Packet {
	p.fields = maps.Clone(p.fields)
	for _, f := range fs {
		delete(p.fields, f)
	}
	return p
}

// String lists the fields in the form of ovs-ofctl.
func (p Packet) String() string {
	var words []string
	for _, f := range slices.Sorted(maps.Keys(p.fields)) {
		if f == openflow.FieldVLANVID && p.fields[f] == [16]byte{} {
			continue // untagged
		}
		words = append(words, fmt.Sprint(openflow.OXM{Field: f, Value: p.fields[f]}))
	}
	return strings.Join(words, ",")
}

// mismatch returns the first field of a match that does not match the packet, and whether there
// is one. have is empty if the packet has no such field.
func (p Packet) mismatch(m openflow.Match) (want openflow.OXM, have string, differs bool) {
	for o := range m.Fields() {
		if want, have, differs = p.fieldMismatch(o); differs {
			return want, have, true
		}
	}
	return openflow.OXM{}, "", false
}

func (p Packet) fieldMismatch(o openflow.OXM) (want openflow.OXM, have string, differs bool) {
	v, ok := p.fields[o.Field]
	if !ok && !zeroIfAbsent(o.Field) {
		return o, "", true
	}
	for i := range v {
		mask := byte(0xff)
		if o.Masked {
			mask = o.Mask[i]
		}
		if (v[i]^o.Value[i])&mask != 0 {
			return o, fmt.Sprint(openflow.OXM{Field: o.Field, Value: v}), true
		}
	}
	return openflow.OXM{}, "", false
}

// zeroIfAbsent reports whether a packet without the field matches as if the field were zero.
func zeroIfAbsent(f openflow.Field) bool {
	switch f {
	case openflow.FieldVLANVID, openflow.FieldMetadata, openflow.FieldTunnelID:
		return true
	}
	return false
}

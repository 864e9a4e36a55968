package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/openflow"
)

// Packet is a packet as match fields see it.
type Packet struct {
	fields map[openflow.Field][16]byte
	// TTL is the IP TTL or hop limit, which no match field holds.
	TTL uint8
	// tags are the identifiers of the VLAN tags under the outermost, innermost first.
	tags [][16]byte
}

// NewPacket makes a packet with these fields. Masks are ignored.
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

// String lists the fields as ovs-ofctl writes them.
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

// mismatch returns the first field by which a match refuses the packet. have is
// empty where the packet has no such field.
func (p Packet) mismatch(m openflow.Match) (want openflow.OXM, have string, differs bool) {
	for o := range m.Fields() {
		if want, have, differs = p.mismatch1(o); differs {
			return want, have, true
		}
	}
	return openflow.OXM{}, "", false
}

func (p Packet) mismatch1(o openflow.OXM) (want openflow.OXM, have string, differs bool) {
	v, ok := p.fields[o.Field]
	if !ok && !alwaysThere(o.Field) {
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

// alwaysThere are the fields that are zero rather than absent.
func alwaysThere(f openflow.Field) bool {
	switch f {
	case openflow.FieldVLANVID, openflow.FieldMetadata, openflow.FieldTunnelID:
		return true
	}
	return false
}

package fake

import (
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Packet is a packet as a flow table sees it: exact values of match fields. It is immutable.
type Packet struct {
	fields openflow.Match
	// Size is added to the byte counters of matching entries.
	Size int
}

// NewPacket returns a packet with these fields. Without a VLAN field it is untagged. NewPacket
// panics if the fields cannot belong to one packet, which is a mistake of the test.
func NewPacket(fields ...openflow.OXM) Packet {
	p := Packet{fields: openflow.MustMatch(fields...), Size: 64}
	if _, ok := p.fields.Get(openflow.FieldVLANVID); !ok {
		p = p.With(openflow.NoVLAN())
	}
	return p
}

// PacketOf returns the packet in a frame.
func PacketOf(frame []byte) Packet {
	h, _ := packet.Parse(frame) // the fields before an error are valid
	p := NewPacket(h.Fields()...)
	p.Size = len(frame)
	return p
}

// With returns the packet with fields set. A field that the packet cannot have, such as a TCP
// port in an ARP message, is ignored.
func (p Packet) With(fields ...openflow.OXM) Packet {
	if m, err := p.fields.With(fields...); err == nil {
		p.fields = m
	}
	return p
}

// untagged returns the packet without its VLAN tag.
func (p Packet) untagged() Packet {
	var rest []openflow.OXM
	for o := range p.fields.Fields() {
		if o.Field != openflow.FieldVLANVID && o.Field != openflow.FieldVLANPCP {
			rest = append(rest, o)
		}
	}
	size := p.Size
	p = NewPacket(rest...)
	p.Size = size
	return p
}

// Get returns a field of the packet, and whether the packet has it.
func (p Packet) Get(f openflow.Field) (openflow.OXM, bool) { return p.fields.Get(f) }

// Matches reports whether a match matches the packet.
func (p Packet) Matches(m openflow.Match) bool { return m.Covers(p.fields) }

// String formats the fields.
func (p Packet) String() string { return p.fields.String() }

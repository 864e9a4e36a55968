package fake

import (
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Packet is a packet as a flow table sees it: exact values of match fields. It
// is immutable.
type Packet struct {
	fields openflow.Match
	// Size is counted by the entries that the packet matches.
	Size int
}

// NewPacket makes a packet of fields. Without a VLAN field it has no tag. It
// panics if the fields cannot stand in one packet, as in a test's mistake.
func NewPacket(fields ...openflow.OXM) Packet {
	p := Packet{fields: openflow.MustMatch(fields...), Size: 64}
	if _, ok := p.fields.Get(openflow.FieldVLANVID); !ok {
		p = p.With(openflow.NoVLAN())
	}
	return p
}

// PacketOf reads a frame.
func PacketOf(frame []byte) Packet {
	h, _ := packet.Parse(frame) // the fields before a fault still count
	p := NewPacket(h.Fields()...)
	p.Size = len(frame)
	return p
}

// With returns the packet with fields set. What cannot be set, as a TCP port in
// an ARP message, leaves it as it is.
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

// Get returns a field of the packet.
func (p Packet) Get(f openflow.Field) (openflow.OXM, bool) { return p.fields.Get(f) }

// Matches reports whether a match is for this packet.
func (p Packet) Matches(m openflow.Match) bool { return m.Covers(p.fields) }

// String lists the fields.
func (p Packet) String() string { return p.fields.String() }

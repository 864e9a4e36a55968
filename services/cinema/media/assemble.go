package media

import (
	"encoding/binary"
	"time"
)

// maxUnitSize is the maximum size of a picture in bytes.
const maxUnitSize = 2 << 20

// Unit is a complete picture, as an access unit of H.264 in the format of Annex B, or a packet
// of Opus.
type Unit struct {
	Sound bool
	Key   bool // the picture depends on none before it
	Cut   bool // the first picture after a change of channel
	Time  time.Duration
	// Data belongs to the caller. Its first bytes are reserved for a header of the length that
	// NewAssembler was given.
	Data []byte
}

// Assembler assembles the packets of a Splicer to units, for one viewer (RFC 6184,
// packetization mode 1). It omits incomplete pictures, and the pictures that depend on them, until the
// next key frame. It is not safe for concurrent use.
type Assembler struct {
	headroom      int
	unit          Unit
	size          int // size of the last picture, as an estimate of the next one's
	stamp         uint32
	open          bool // a picture has started
	fragment      bool // a NAL unit is incomplete
	broken        bool // the picture cannot be completed
	needsKeyFrame bool // an omitted picture makes the following ones useless
}

// NewAssembler returns an Assembler that reserves head bytes at the start of each unit.
func NewAssembler(head int) *Assembler { return &Assembler{headroom: head, needsKeyFrame: true} }

// Push adds a packet. It returns the unit that the packet completes, if it completes one.
func (a *Assembler) Push(o Out) (Unit, bool) {
	if o.Audio() {
		data := make([]byte, a.headroom, a.headroom+len(o.Payload))
		return Unit{Sound: true, Time: o.Time, Data: append(data, o.Payload...)}, len(o.Payload) > 0
	}
	if !a.open || o.Timestamp != a.stamp {
		a.begin(o)
	}
	if !a.broken && !a.add(o.Payload) {
		a.broken = true
	}
	if !o.Marker {
		return Unit{}, false
	}
	return a.end()
}

// begin starts a picture. If the last one is incomplete, it is given up.
func (a *Assembler) begin(o Out) {
	a.needsKeyFrame = a.needsKeyFrame || a.open
	a.open, a.broken, a.fragment, a.stamp = true, false, false, o.Timestamp
	a.unit = Unit{Time: o.Time, Cut: o.Cut, Data: make([]byte, a.headroom, a.headroom+a.size+a.size/4)}
}

// end returns the picture, and reports whether it can be decoded.
func (a *Assembler) end() (Unit, bool) {
	u := a.unit
	a.open, a.unit = false, Unit{}
	a.size = min(len(u.Data), 64<<10)
	if a.broken || a.fragment || len(u.Data) == a.headroom {
		a.needsKeyFrame = true
		return Unit{}, false
	}
	a.needsKeyFrame = a.needsKeyFrame && !u.Key
	return u, !a.needsKeyFrame
}

// add adds the payload of a packet to the picture, and reports whether the payload is valid at this
// point. An empty payload is valid.
func (a *Assembler) add(payload []byte) bool {
	if len(payload) == 0 {
		return true
	}
	switch kind := nalType(payload[0]); {
	case kind == nalFragment:
		return a.addFragment(payload)
	case a.fragment, kind == 0:
		return false
	case kind == nalAggregate:
		return a.addAggregate(payload[1:])
	case kind < nalAggregate:
		return a.addNAL(payload[0], payload[1:])
	default:
		return false
	}
}

func (a *Assembler) addAggregate(b []byte) bool {
	for len(b) > 2 {
		n := int(binary.BigEndian.Uint16(b))
		if b = b[2:]; n == 0 || n > len(b) || !a.addNAL(b[0], b[1:n]) {
			return false
		}
		b = b[n:]
	}
	return len(b) == 0
}

// addFragment adds an FU-A (RFC 6184, section 5.8).
func (a *Assembler) addFragment(b []byte) bool {
	const start, end = 0x80, 0x40
	if len(b) < 3 || b[1]&start != 0 == a.fragment {
		return false
	}
	a.fragment = b[1]&end == 0
	if b[1]&start != 0 {
		return a.addNAL(b[0]&^0x1f|nalType(b[1]), b[2:])
	}
	return a.grow(b[2:])
}

func (a *Assembler) addNAL(header byte, rest []byte) bool {
	a.unit.Key = a.unit.Key || nalType(header) == nalKeySlice
	a.unit.Data = append(a.unit.Data, 0, 0, 0, 1, header)
	return a.grow(rest)
}

func (a *Assembler) grow(b []byte) bool {
	a.unit.Data = append(a.unit.Data, b...)
	return len(a.unit.Data) <= maxUnitSize
}

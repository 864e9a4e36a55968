package media

import (
	"encoding/binary"
	"time"
)

// maxUnit bounds a picture, in bytes.
const maxUnit = 2 << 20

// Unit is a whole picture, as an access unit of H.264 in the format of Annex B, or a packet of
// Opus.
type Unit struct {
	Sound bool
	Key   bool // the picture needs none before it
	Cut   bool // it is the first one of another channel
	Time  time.Duration
	// Data is its caller's. So many bytes as the assembler was made with are left free at its
	// beginning.
	Data []byte
}

// Assembler makes units of what a Splicer puts out, for one viewer (RFC 6184, packetization
// mode 1). A picture that is not whole is left out, and so are those that need it, until the
// next key frame. It is not safe for concurrent use.
type Assembler struct {
	head     int
	unit     Unit
	size     int // of the last picture, as the next one may be
	stamp    uint32
	open     bool // a picture has begun
	fragment bool // of a NAL unit that is not complete
	broken   bool // the picture cannot become whole
	lost     bool // pictures need what was left out
}

// NewAssembler returns one that leaves so many bytes free at the beginning of each unit.
func NewAssembler(head int) *Assembler { return &Assembler{head: head, lost: true} }

// Push takes a packet; it returns the unit that is complete by that, if one is.
func (a *Assembler) Push(o Out) (Unit, bool) {
	if o.Audio() {
		data := make([]byte, a.head, a.head+len(o.Payload))
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

// begin begins a picture. One that was not complete is lost.
func (a *Assembler) begin(o Out) {
	a.lost = a.lost || a.open
	a.open, a.broken, a.fragment, a.stamp = true, false, false, o.Timestamp
	a.unit = Unit{Time: o.Time, Cut: o.Cut, Data: make([]byte, a.head, a.head+a.size+a.size/4)}
}

// end returns the picture, if it can be decoded.
func (a *Assembler) end() (Unit, bool) {
	u := a.unit
	a.open, a.unit = false, Unit{}
	a.size = min(len(u.Data), 64<<10)
	if a.broken || a.fragment || len(u.Data) == a.head {
		a.lost = true
		return Unit{}, false
	}
	a.lost = a.lost && !u.Key
	return u, !a.lost
}

// add adds what is in a packet; false if it cannot be part of the picture. A packet without
// payload is.
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
	return len(a.unit.Data) <= maxUnit
}

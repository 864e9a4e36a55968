package media

import (
	"errors"
	"fmt"
	"iter"

	"github.com/pion/rtp"
)

// Payload types of the house format, and the clock rates of their timestamps in Hz.
const (
	VideoType  = 96
	AudioType  = 111
	VideoClock = 90000
	AudioClock = 48000
)

// MaxDatagram is the maximum length of a datagram in bytes, without IP and UDP headers. A datagram of
// this length fits into an Ethernet frame without fragmentation.
const MaxDatagram = 1472

// NAL unit types (H.264, table 7-1; RFC 6184, table 1).
const (
	nalSlice      = 1 // of a picture that is no key frame
	nalKeySlice   = 5
	nalParameters = 7 // a sequence parameter set; a key frame begins with one
	nalAggregate  = 24
	nalFragment   = 28
)

// Errors of Parse.
var (
	ErrTooLong = fmt.Errorf("datagram of more than %d bytes", MaxDatagram)
	errControl = errors.New("RTCP packet without version 2 or of less than 8 bytes")
)

// Packet is one datagram of a channel. An RTCP packet has only Control and SSRC.
type Packet struct {
	// Control reports whether the packet is RTCP (RFC 5761, section 4), such as a sender report.
	Control   bool
	Type      uint8 // payload type
	Marker    bool  // last packet of a picture
	Sequence  uint16
	Timestamp uint32 // in the clock of the payload type
	SSRC      uint32
	// Payload holds the bytes between header and padding, and may be empty. It aliases the
	// datagram.
	Payload []byte
}

// Parse parses one datagram. It accepts payload types other than those of the house format.
func Parse(b []byte) (Packet, error) {
	if len(b) > MaxDatagram {
		return Packet{}, ErrTooLong
	}
	if len(b) >= 2 && isControl(b[1]) {
		return parseControl(b)
	}
	var p rtp.Packet
	if err := p.Unmarshal(b); err != nil {
		return Packet{}, fmt.Errorf("RTP packet of %d bytes: %w", len(b), err)
	}
	if p.Version != 2 {
		return Packet{}, fmt.Errorf("RTP packet: version %d, want 2", p.Version)
	}
	return Packet{
		Type: p.PayloadType, Marker: p.Marker, Sequence: p.SequenceNumber, Timestamp: p.Timestamp, SSRC: p.SSRC,
		Payload: p.Payload,
	}, nil
}

// isControl reports whether a datagram with this second byte is RTCP. Packet types 192 to 223
// correspond to payload types 64 to 95 with a marker, which RTP does not use.
func isControl(second byte) bool {
	t := second & 0x7f
	return t >= 64 && t <= 95
}

func parseControl(b []byte) (Packet, error) {
	if len(b) < 8 || b[0]>>6 != 2 {
		return Packet{}, errControl
	}
	ssrc := uint32(b[4])<<24 | uint32(b[5])<<16 | uint32(b[6])<<8 | uint32(b[7])
	return Packet{Control: true, SSRC: ssrc}, nil
}

// Video reports whether the packet is part of a picture.
func (p Packet) Video() bool { return !p.Control && p.Type == VideoType }

// Audio reports whether the packet is sound.
func (p Packet) Audio() bool { return !p.Control && p.Type == AudioType }

// KeyFrame reports whether a key frame's access unit may start with the packet. It may if the packet
// contains, or is the first fragment of, a sequence parameter set or a slice of a key frame. KeyFrame
// may return true for several packets of one access unit, all of which have the same timestamp.
func (p Packet) KeyFrame() bool {
	for kind := range p.units() {
		if startsKeyFrame(kind) {
			return true
		}
	}
	return false
}

// BSlice reports whether a slice of a B-frame starts in the packet. A B-frame depends on a later picture,
// so its encoder sends pictures in another order than that in which they are shown.
func (p Packet) BSlice() bool {
	for kind, body := range p.units() {
		if kind == nalSlice && isB(body) {
			return true
		}
	}
	return false
}

// units returns the NAL units that start in a packet of a picture, by their types, each without its
// header. They are the unit that the packet is, the one whose first fragment it is, or those that it
// aggregates (STAP-A; RFC 6184, section 5.7.1), each of which has a length field of two bytes. A unit
// that is longer than the rest of the packet ends the sequence.
func (p Packet) units() iter.Seq2[byte, []byte] {
	return func(yield func(byte, []byte) bool) {
		b := p.Payload
		if !p.Video() || len(b) == 0 {
			return
		}
		switch kind := nalType(b[0]); kind {
		case nalAggregate:
			for b = b[1:]; len(b) > 2; {
				n := int(b[0])<<8 | int(b[1])
				if b = b[2:]; n == 0 || n > len(b) || !yield(nalType(b[0]), b[1:n]) {
					return
				}
				b = b[n:]
			}
		case nalFragment:
			const start = 0x80
			if len(b) > 1 && b[1]&start != 0 {
				yield(nalType(b[1]), b[2:])
			}
		default:
			yield(kind, b[1:])
		}
	}
}

// isB reports whether a slice is part of a B-frame, given the slice's header (H.264, 7.3.3). A slice that
// is cut off in its type is not.
func isB(header []byte) bool {
	b := bits{b: header}
	b.expGolomb() // first_mb_in_slice
	kind := b.expGolomb()
	return kind == 1 || kind == 6 // table 7-6
}

// bits reads bits, the most significant bit of a byte first.
type bits struct {
	b  []byte
	at int // index of the next bit
}

// next returns the next bit, and reports whether there is one.
func (r *bits) next() (bit int, ok bool) {
	if r.at >= 8*len(r.b) {
		return 0, false
	}
	bit = int(r.b[r.at/8]>>(7-r.at%8)) & 1
	r.at++
	return bit, true
}

// expGolomb returns the next number in Exp-Golomb code (H.264, 9.1), or -1 if it is cut off or has more
// than 16 bits.
func (r *bits) expGolomb() int {
	zeros := 0
	for {
		bit, ok := r.next()
		if !ok || zeros > 16 {
			r.at = 8 * len(r.b)
			return -1
		}
		if bit == 1 {
			break
		}
		zeros++
	}
	n := 1
	for range zeros {
		bit, ok := r.next()
		if !ok {
			return -1
		}
		n = n<<1 | bit
	}
	return n - 1
}

func nalType(header byte) byte { return header & 0x1f }

func startsKeyFrame(kind byte) bool { return kind == nalKeySlice || kind == nalParameters }

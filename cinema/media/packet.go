package media

import (
	"errors"
	"fmt"

	"github.com/pion/rtp"
)

// The house format's payload types, and the clocks of their timestamps in Hz.
const (
	VideoType  = 96
	AudioType  = 111
	VideoClock = 90000
	AudioClock = 48000
)

// MaxDatagram is the longest datagram that Parse takes, in bytes: what fits into an Ethernet
// frame without fragments.
const MaxDatagram = 1472

// NAL unit types (H.264, table 7-1; RFC 6184, table 1).
const (
	nalKeySlice   = 5
	nalParameters = 7 // a sequence parameter set, with which a key frame begins
	nalAggregate  = 24
	nalFragment   = 28
)

// Errors of Parse.
var (
	ErrTooLong = fmt.Errorf("datagram of more than %d bytes", MaxDatagram)
	errControl = errors.New("RTCP packet without version 2 or of less than 8 bytes")
)

// Packet is one datagram of a channel. Of an RTCP packet all is zero but Control and SSRC.
type Packet struct {
	// Control says that it is RTCP (RFC 5761, section 4), such as a sender report.
	Control   bool
	Type      uint8 // payload type
	Marker    bool  // the last packet of a picture
	Sequence  uint16
	Timestamp uint32 // in the clock of the payload type
	SSRC      uint32
	// Payload is what lies between header and padding, maybe nothing. It is the datagram's
	// own memory.
	Payload []byte
}

// Parse reads one datagram. Payload types other than the house format's are no error.
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

// isControl tells RTCP from RTP by the second byte: packet types 192 to 223 are payload types
// 64 to 95 with a marker, which RTP leaves alone.
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

// Video says whether it is part of a picture.
func (p Packet) Video() bool { return !p.Control && p.Type == VideoType }

// Audio says whether it is sound.
func (p Packet) Audio() bool { return !p.Control && p.Type == AudioType }

// KeyFrame says whether a key frame's access unit may begin with it: it holds, or is the first
// fragment of, a sequence parameter set or a slice of a key frame. Several packets of one
// access unit can be like that; all of them have the same timestamp.
func (p Packet) KeyFrame() bool {
	if !p.Video() || len(p.Payload) == 0 {
		return false
	}
	switch kind := nalType(p.Payload[0]); kind {
	case nalAggregate:
		return aggregateBegins(p.Payload[1:])
	case nalFragment:
		const start = 0x80
		return len(p.Payload) > 1 && p.Payload[1]&start != 0 && begins(nalType(p.Payload[1]))
	default:
		return begins(kind)
	}
}

// aggregateBegins looks into a STAP-A (RFC 6184, section 5.7.1), whose units have two bytes of
// length each. One that is longer than the rest ends the search.
func aggregateBegins(b []byte) bool {
	for len(b) > 2 {
		n := int(b[0])<<8 | int(b[1])
		if b = b[2:]; n == 0 || n > len(b) {
			return false
		}
		if begins(nalType(b[0])) {
			return true
		}
		b = b[n:]
	}
	return false
}

func nalType(header byte) byte { return header & 0x1f }

func begins(kind byte) bool { return kind == nalKeySlice || kind == nalParameters }

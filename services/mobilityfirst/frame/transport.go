package frame

import "fmt"

// Reliability is what a sender wants to hear of a chunk.
type Reliability uint8

// The kinds of reliability.
const (
	ReliabilityAny Reliability = iota
	ReliabilityNACK
	ReliabilityACK
)

const transportSize = 24

// TransportHeader stands behind the routing header, and is of concern to the ends alone.
type TransportHeader struct {
	// Sequence is the chunk's place in its message, Size its bytes, Packets how many frames it has.
	Sequence, Size, Packets uint32
	// Start and End are where the chunk stands in its message.
	Start, End uint16
	// Kind and Flags have four bits each.
	Kind, Flags uint8
	Reliability Reliability
	Offset      uint16
	// Congestion is a notice of it, Window what the receiver takes, in megabytes.
	Congestion, Window uint16
}

// AppendTo appends the header to b.
func (h *TransportHeader) AppendTo(b []byte) []byte {
	b = appendWords(b, h.Sequence, h.Size, h.Packets)
	b = be.AppendUint16(be.AppendUint16(b, h.Start), h.End)
	b = append(b, h.Kind<<4|h.Flags&0xf, uint8(h.Reliability))
	for _, v := range []uint16{h.Offset, h.Congestion, h.Window} {
		b = be.AppendUint16(b, v)
	}
	return b
}

// ParseTransport reads the header, and gives what stands behind it. The error wraps ErrShort.
func ParseTransport(b []byte) (h TransportHeader, payload []byte, err error) {
	if len(b) < transportSize {
		return h, nil, fmt.Errorf("transport header of %d bytes: %w", len(b), ErrShort)
	}
	h = TransportHeader{
		Sequence: be.Uint32(b), Size: be.Uint32(b[4:]), Packets: be.Uint32(b[8:]), Start: be.Uint16(b[12:]), End: be.Uint16(b[14:]),
		Kind: b[16] >> 4, Flags: b[16] & 0xf, Reliability: Reliability(b[17]),
		Offset: be.Uint16(b[18:]), Congestion: be.Uint16(b[20:]), Window: be.Uint16(b[22:]),
	}
	return h, b[transportSize:], nil
}

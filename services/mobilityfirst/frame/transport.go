package frame

import "fmt"

// Reliability is the kind of acknowledgement that a sender wants for a chunk.
type Reliability uint8

// The kinds of reliability.
const (
	ReliabilityAny Reliability = iota
	ReliabilityNACK
	ReliabilityACK
)

const transportSize = 24

// TransportHeader follows the routing header. Only the end hosts use it.
type TransportHeader struct {
	// Sequence is the chunk's position in its message, Size its bytes, and Packets the number of
	// its frames.
	Sequence, Size, Packets uint32
	// Start and End delimit the chunk in its message.
	Start, End uint16
	// Kind and Flags have four bits each.
	Kind, Flags uint8
	Reliability Reliability
	Offset      uint16
	// Congestion is a congestion notification, and Window the receive window in megabytes.
	Congestion, Window uint16
}

// AppendTo appends the header to b.
func (h *TransportHeader) AppendTo(b []byte) []byte {
	b = appendUint32s(b, h.Sequence, h.Size, h.Packets)
	b = be.AppendUint16(be.AppendUint16(b, h.Start), h.End)
	b = append(b, h.Kind<<4|h.Flags&0xf, uint8(h.Reliability))
	for _, v := range []uint16{h.Offset, h.Congestion, h.Window} {
		b = be.AppendUint16(b, v)
	}
	return b
}

// ParseTransport parses the header and returns it with the bytes behind it. The error wraps
// ErrShort.
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

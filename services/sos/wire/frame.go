package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// HeaderSize is the size of a frame header.
const HeaderSize = 16

// MaxChunk is the largest payload of one Data frame.
const MaxChunk = 16 << 20

// ChunkCost is the cost of a chunk in addition to its payload when it is counted against the
// window. With it, the window bounds the number of chunks as well as their bytes.
const ChunkCost = 16 << 10

// FirstCredit is the window of each side of a session before the other side has granted any, so
// that a request need not wait a round trip for it. Every receiver can accept as much: it accepts
// twice its window, which has room for at least two of the smallest chunks.
const FirstCredit = 4 * ChunkCost

// Kind is the type of a frame.
type Kind uint8

// The kinds of frames.
const (
	Data    Kind = 1
	Ack     Kind = 2
	Window  Kind = 3
	Reset   Kind = 4
	Release Kind = 5
)

// String returns the name of the kind.
func (k Kind) String() string {
	names := [...]string{Data: "data", Ack: "ack", Window: "window", Reset: "reset", Release: "release"}
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Flags holds the flags of a Data frame.
type Flags uint8

// The flags. A chunk with one of them has no payload and is the direction's last.
const (
	FlagFIN Flags = 1 << 0 // the end host closed its direction
	FlagRST Flags = 1 << 1 // the end host reset its connection
)

// Cause is the number in a Reset frame. It tells why the session was reset.
type Cause uint64

// The causes.
const (
	CauseEndHost Cause = 1 // the end host reset its connection
	CauseAbort   Cause = 2 // the controller ended the session
	CauseAgent   Cause = 3 // the agent gave up: idle, shutting down, failed
)

// Header is a frame header.
type Header struct {
	Kind   Kind
	Flags  Flags
	Length uint32 // payload bytes, for Data only
	Number uint64
}

// Cost returns the frame's cost, which counts against its direction's window. The last chunk is
// free, because it must never have to wait for the window.
func (h Header) Cost() uint64 {
	if h.Kind != Data || h.Flags != 0 {
		return 0
	}
	return uint64(h.Length) + ChunkCost
}

// ErrFrame is wrapped by every error about a frame that violates the protocol.
var ErrFrame = errors.New("bad frame")

// AppendTo appends the header's HeaderSize bytes to b.
func (h Header) AppendTo(b []byte) []byte {
	b = append(b, byte(h.Kind), byte(h.Flags), 0, 0)
	b = binary.BigEndian.AppendUint32(b, h.Length)
	return binary.BigEndian.AppendUint64(b, h.Number)
}

// ParseHeader reads a header from the first HeaderSize bytes of b.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: %d bytes, a header has %d", ErrFrame, len(b), HeaderSize)
	}
	h := Header{
		Kind:   Kind(b[0]),
		Flags:  Flags(b[1]),
		Length: binary.BigEndian.Uint32(b[4:]),
		Number: binary.BigEndian.Uint64(b[8:]),
	}
	if b[2] != 0 || b[3] != 0 {
		return Header{}, fmt.Errorf("%w: reserved bytes are %#x %#x, want 0", ErrFrame, b[2], b[3])
	}
	return h, h.check()
}

// check returns an error if the header violates the rules of its kind.
func (h Header) check() error {
	if h.Kind == Data {
		return h.checkData()
	}
	if h.Kind == 0 || h.Kind > Release {
		return fmt.Errorf("%w: unknown %v", ErrFrame, h.Kind)
	}
	if h.Flags != 0 || h.Length != 0 {
		return fmt.Errorf("%w: %v with flags %#x and length %d, want none", ErrFrame, h.Kind, uint8(h.Flags), h.Length)
	}
	return nil
}

// checkData returns an error unless a chunk has either payload or one flag that ends the
// direction.
func (h Header) checkData() error {
	switch h.Flags {
	case 0:
		if h.Length == 0 || h.Length > MaxChunk {
			return fmt.Errorf("%w: chunk of %d bytes, want 1 to %d", ErrFrame, h.Length, MaxChunk)
		}
	case FlagFIN, FlagRST:
		if h.Length != 0 {
			return fmt.Errorf("%w: last chunk with %d bytes, want 0", ErrFrame, h.Length)
		}
	default:
		return fmt.Errorf("%w: data flags %#x", ErrFrame, uint8(h.Flags))
	}
	return nil
}

package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Version is the wire number of OpenFlow 1.3, the version this package speaks.
const Version = 0x04

// MaxMessage is the largest size of a message in bytes: the length field of
// the header has 16 bits.
const MaxMessage = 0xffff

const headerSize = 8

// The reasons for which input or a message to be sent is refused. They are
// wrapped by the errors this package returns; test with errors.Is.
var (
	// ErrTooShort means that the bytes end before the structure does.
	ErrTooShort = errors.New("too short")
	// ErrLength means that a length field contradicts the bytes around it.
	ErrLength = errors.New("bad length")
	// ErrVersion means that a message has another version than 1.3.
	ErrVersion = errors.New("wrong version")
	// ErrType means that a type number is unknown or unexpected.
	ErrType = errors.New("unexpected type")
	// ErrValue means that a field has a value that the protocol does not allow.
	ErrValue = errors.New("bad value")
	// ErrTooLong means that a message exceeds MaxMessage when it is sent, or the reader's limit
	// when it is received.
	ErrTooLong = errors.New("message too long")
	// ErrMatch means that a match violates a rule of the protocol.
	ErrMatch = errors.New("bad match")
)

// DecodeError describes which structure of the input is wrong, where and why.
type DecodeError struct {
	What   string // the structure, named as in the specification
	Offset int    // bytes from the start of that structure's container
	Err    error  // one of ErrTooShort, ErrLength, ErrVersion, ErrType, ErrValue
	Detail string
}

// Error names structure, reason and place on one line.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("openflow: %s at byte %d: %v: %s", e.What, e.Offset, e.Err, e.Detail)
}

// Unwrap returns the reason.
func (e *DecodeError) Unwrap() error { return e.Err }

func tooShort(what string, have, need int) error {
	return &DecodeError{What: what, Offset: have, Err: ErrTooShort, Detail: fmt.Sprintf("have %d bytes, need %d", have, need)}
}

func badLength(what string, offset int, format string, args ...any) error {
	return &DecodeError{What: what, Offset: offset, Err: ErrLength, Detail: fmt.Sprintf(format, args...)}
}

func badValue(what string, offset int, format string, args ...any) error {
	return &DecodeError{What: what, Offset: offset, Err: ErrValue, Detail: fmt.Sprintf(format, args...)}
}

var be = binary.BigEndian

func put16(b []byte, v uint16) []byte { return be.AppendUint16(b, v) }
func put32(b []byte, v uint32) []byte { return be.AppendUint32(b, v) }
func put64(b []byte, v uint64) []byte { return be.AppendUint64(b, v) }

var zeros [64]byte

// pad appends n zero bytes, n <= 64.
func pad(b []byte, n int) []byte { return append(b, zeros[:n]...) }

// padTo8 appends zero bytes until the structure that began at start has a
// size that is a multiple of eight.
func padTo8(b []byte, start int) []byte { return pad(b, -(len(b)-start)&7) }

func roundUp8(n int) int { return (n + 7) &^ 7 }

// begin appends a header whose length finish fills in.
func begin(b []byte, t MsgType, xid uint32) []byte {
	b = append(b, Version, byte(t), 0, 0)
	return put32(b, xid)
}

// finish sets the length of the message that began at start. On failure the
// buffer is cut back to start.
func finish(b []byte, start int, err error) ([]byte, error) {
	if err != nil {
		return b[:start], err
	}
	n := len(b) - start
	if n > MaxMessage {
		return b[:start], fmt.Errorf("openflow: %v: %w: %d bytes, at most %d", MsgType(b[start+1]), ErrTooLong, n, MaxMessage)
	}
	be.PutUint16(b[start+2:], uint16(n))
	return b, nil
}

// setLen16 stores the size of the structure that began at start into the two bytes at its
// offset. It need not check for sizes beyond 16 bits, because finish then refuses the message
// around the structure.
func setLen16(b []byte, start, offset int) {
	be.PutUint16(b[start+offset:], uint16(len(b)-start))
}

// putString appends s in a field of exactly n bytes, filled up with zeros.
// The last byte is always zero, as C readers expect.
func putString(b []byte, s string, n int) []byte {
	if len(s) > n-1 {
		s = s[:n-1]
	}
	b = append(b, s...)
	for range n - len(s) {
		b = append(b, 0)
	}
	return b
}

// cString reads a fixed field that holds a string ended by a zero byte. Where
// the zero is missing the last byte is taken for it, as C readers do.
func cString(b []byte) string {
	b = b[:len(b)-1]
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

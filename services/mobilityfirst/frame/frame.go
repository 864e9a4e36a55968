package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// EtherType is the EtherType of all frames.
const EtherType = 0x27c0

// Type is the type of a frame.
type Type uint32

// The types of the original release.
const (
	TypeData Type = iota
	TypeCSYN
	TypeCACK
	TypeProbe
	TypeProbeAck
	TypeLSA
	TypeAssociate
	TypeDeassociate
)

var typeNames = [...]string{"DATA", "CSYN", "CACK", "probe", "probe ack", "LSA", "association", "de-association"}

// String returns the type's name.
func (t Type) String() string {
	if int64(t) < int64(len(typeNames)) {
		return typeNames[t]
	}
	if name := mf2Names[t]; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Errors that parsers wrap.
var (
	// ErrShort means that a frame is shorter than its fields.
	ErrShort = errors.New("it ends too early")
	// ErrType means that a frame's type is unknown.
	ErrType = errors.New("its type is not known")
	// ErrLayout means that lengths and offsets contradict each other.
	ErrLayout = errors.New("its lengths contradict each other")
)

// Frame is the content of a frame behind the Ethernet header: a *Data, *CSYN, *CACK, *Probe, *LSA,
// *Associate or *Deassociate, or one of mf2: a *StreamData, *StreamAck, *StreamQuery, *StreamReset,
// *Hello, *PathRequest, *PathGrant or *PathConfirm.
type Frame interface {
	// Type returns the frame's type.
	Type() Type
	// AppendTo appends the frame, including its type, to b.
	AppendTo(b []byte) []byte
	// parse reads the fields behind the type.
	parse(b []byte) error
}

// Parse reads a frame from the bytes behind the Ethernet header. It ignores bytes behind the frame,
// such as the padding of short frames. The error wraps ErrShort, ErrType or ErrLayout.
func Parse(b []byte) (Frame, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("frame of %d bytes: %w", len(b), ErrShort)
	}
	t := Type(be.Uint32(b))
	f := newFrame(t)
	if f == nil {
		return nil, fmt.Errorf("frame of %v: %w", t, ErrType)
	}
	if err := f.parse(b[4:]); err != nil {
		return nil, fmt.Errorf("%v of %d bytes: %w", t, len(b), err)
	}
	return f, nil
}

// newFrame returns an empty frame of a type, or nil if the type is unknown.
func newFrame(t Type) Frame {
	switch t {
	case TypeData:
		return new(Data)
	case TypeCSYN:
		return new(CSYN)
	case TypeCACK:
		return new(CACK)
	case TypeProbe, TypeProbeAck:
		return &Probe{Ack: t == TypeProbeAck}
	case TypeLSA:
		return new(LSA)
	case TypeAssociate:
		return new(Associate)
	case TypeDeassociate:
		return new(Deassociate)
	case TypeStreamData:
		return new(StreamData)
	case TypeStreamAck:
		return new(StreamAck)
	case TypeStreamQuery:
		return new(StreamQuery)
	case TypeStreamReset:
		return new(StreamReset)
	case TypeHello:
		return new(Hello)
	case TypePathRequest:
		return new(PathRequest)
	case TypePathGrant:
		return new(PathGrant)
	case TypePathConfirm:
		return new(PathConfirm)
	}
	return nil
}

var be = binary.BigEndian

// readUint32s reads 32-bit integers from the start of b.
func readUint32s(b []byte, into ...*uint32) error {
	if len(b) < 4*len(into) {
		return ErrShort
	}
	for i, w := range into {
		*w = be.Uint32(b[4*i:])
	}
	return nil
}

// appendUint32s appends 32-bit integers to b.
func appendUint32s(b []byte, all ...uint32) []byte {
	for _, w := range all {
		b = be.AppendUint32(b, w)
	}
	return b
}

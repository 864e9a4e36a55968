package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// EtherType is that of all frames.
const EtherType = 0x27c0

// Type says what a frame is.
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

// String is the type's name.
func (t Type) String() string {
	if int64(t) < int64(len(typeNames)) {
		return typeNames[t]
	}
	if name := mf2Names[t]; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Errors of parsers, which wrap them.
var (
	// ErrShort is for a frame that ends before what belongs to it does.
	ErrShort = errors.New("it ends too early")
	// ErrType is for a frame of a type that is not known.
	ErrType = errors.New("its type is not known")
	// ErrLayout is for lengths and offsets that contradict each other.
	ErrLayout = errors.New("its lengths contradict each other")
)

// Frame is what stands behind the Ethernet header: a *Data, *CSYN, *CACK, *Probe, *LSA, *Associate
// or *Deassociate, or one of mf2: a *StreamData, *StreamAck, *StreamQuery, *StreamReset, *Hello,
// *PathRequest, *PathGrant or *PathConfirm.
type Frame interface {
	// Type is what it is.
	Type() Type
	// AppendTo appends the frame, its type included, to b.
	AppendTo(b []byte) []byte
	// parse reads what stands behind the type.
	parse(b []byte) error
}

// Parse reads a frame from what stands behind the Ethernet header. What follows the frame, as the
// padding of short ones, is ignored. The error wraps ErrShort, ErrType or ErrLayout.
func Parse(b []byte) (Frame, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("frame of %d bytes: %w", len(b), ErrShort)
	}
	t := Type(be.Uint32(b))
	f := empty(t)
	if f == nil {
		return nil, fmt.Errorf("frame of %v: %w", t, ErrType)
	}
	if err := f.parse(b[4:]); err != nil {
		return nil, fmt.Errorf("%v of %d bytes: %w", t, len(b), err)
	}
	return f, nil
}

// empty is a frame of a type to be parsed, nil for an unknown one.
func empty(t Type) Frame {
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

// words reads 32-bit numbers from the start of b.
func words(b []byte, into ...*uint32) error {
	if len(b) < 4*len(into) {
		return ErrShort
	}
	for i, w := range into {
		*w = be.Uint32(b[4*i:])
	}
	return nil
}

// appendWords appends 32-bit numbers.
func appendWords(b []byte, all ...uint32) []byte {
	for _, w := range all {
		b = be.AppendUint32(b, w)
	}
	return b
}

package gnrswire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Port is the UDP port of the service.
const Port = 5001

var be = binary.BigEndian

// Kind is the kind of a request.
type Kind uint8

// The kinds of messages.
const (
	Insert Kind = 0
	Lookup Kind = 1
	Update Kind = 2
)

// answerBit is set in the kind of an answer.
const answerBit = 0x80

var kindNames = [...]string{"insert", "lookup", "update"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Errors that Parse and AppendTo wrap, besides frame.ErrShort and frame.ErrLayout.
var (
	// ErrKind means that a message's kind is unknown.
	ErrKind = errors.New("its kind is not known")
	// ErrLong means that a message or its options are too long.
	ErrLong = errors.New("it is too long")
)

// Message is a request or an answer.
type Message struct {
	Version uint8
	Kind    Kind
	// Answer is set in an answer to a request of this kind.
	Answer bool
	// Request is the number with which the requester recognizes the answer.
	Request uint32
	// Requester is the address of the requester, to which the answer is sent.
	Requester Address
	Options   []Option

	// GUID is the requested name; an answer has none.
	GUID frame.GUID
	// Code is the result in an answer, zero for success.
	Code uint16
	// Addresses lists the addresses of the name in an insert, an update, or an answer.
	Addresses []Address
}

const (
	headerSize = 12
	guidSize   = len(frame.GUID{})
	answerSize = 8 // code, padding and count
	countSize  = 4
)

// AppendTo appends the message to b. On error it returns b unchanged; the error wraps ErrLong or
// ErrKind.
func (m *Message) AppendTo(b []byte) ([]byte, error) {
	if m.Kind > Update {
		return b, fmt.Errorf("message of %v: %w", m.Kind, ErrKind)
	}
	start := len(b)
	kind := uint8(m.Kind)
	if m.Answer {
		kind |= answerBit
	}
	b = append(b, m.Version, kind, 0, 0)
	b = be.AppendUint32(b, m.Request)
	options := headerSize + m.Requester.size()
	payload := options
	for _, o := range m.Options {
		if len(o.Value) > 0xff || o.Kind >= lastOption {
			return b[:start], fmt.Errorf("option %d of %d bytes: %w", o.Kind, len(o.Value), ErrLong)
		}
		payload += optionHeader + len(o.Value)
	}
	if len(m.Options) == 0 {
		options = 0
	}
	b = be.AppendUint16(be.AppendUint16(b, uint16(options)), uint16(payload))
	b = appendOptions(m.Requester.appendTo(b), m.Options)
	if b = m.appendPayload(b); len(b)-start > 0xffff {
		return b[:start], fmt.Errorf("message of %d bytes: %w", len(b)-start, ErrLong)
	}
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return b, nil
}

func (m *Message) appendPayload(b []byte) []byte {
	switch {
	case m.Answer:
		b = be.AppendUint16(be.AppendUint16(b, m.Code), 0)
	default:
		b = append(b, m.GUID[:]...)
	}
	if !m.hasAddresses() {
		return b
	}
	b = be.AppendUint32(b, uint32(len(m.Addresses)))
	for _, a := range m.Addresses {
		b = a.appendTo(b)
	}
	return b
}

// hasAddresses reports whether the message contains a list of addresses.
func (m *Message) hasAddresses() bool { return m.Answer || m.Kind != Lookup }

// Parse parses a message. It ignores bytes behind it in the datagram. The error wraps
// frame.ErrShort, ErrKind or frame.ErrLayout.
func Parse(b []byte) (*Message, error) {
	if len(b) < headerSize {
		return nil, fmt.Errorf("message of %d bytes: %w", len(b), frame.ErrShort)
	}
	m := &Message{Version: b[0], Kind: Kind(b[1] &^ answerBit), Answer: b[1]&answerBit != 0, Request: be.Uint32(b[4:])}
	if m.Kind > Update {
		return nil, fmt.Errorf("message of %v: %w", m.Kind, ErrKind)
	}
	if err := m.parse(b); err != nil {
		return nil, fmt.Errorf("%v of %d bytes: %w", m.Kind, len(b), err)
	}
	return m, nil
}

func (m *Message) parse(b []byte) (err error) {
	size, options, payload := int(be.Uint16(b[2:])), int(be.Uint16(b[8:])), int(be.Uint16(b[10:]))
	switch {
	case size > len(b):
		return frame.ErrShort
	case payload > size, payload < headerSize, options > payload, options != 0 && options < headerSize:
		return frame.ErrLayout
	}
	end := payload // the end of the address
	if options != 0 {
		end = options
		if m.Options, err = parseOptions(b[options:payload]); err != nil {
			return err
		}
	}
	if m.Requester, _, err = parseAddress(b[headerSize:end]); err != nil {
		return err
	}
	return m.parsePayload(b[payload:size])
}

func (m *Message) parsePayload(b []byte) (err error) {
	switch {
	case m.Answer && len(b) < answerSize, !m.Answer && len(b) < guidSize:
		return frame.ErrShort
	case m.Answer:
		m.Code, b = be.Uint16(b), b[answerSize-countSize:]
	default:
		m.GUID, b = frame.GUID(b[:guidSize]), b[guidSize:]
	}
	if !m.hasAddresses() {
		return nil
	}
	if len(b) < countSize {
		return frame.ErrShort
	}
	count := be.Uint32(b)
	b = b[countSize:]
	if int64(count)*addressHeader > int64(len(b)) {
		return frame.ErrShort
	}
	m.Addresses = make([]Address, count)
	for i := range m.Addresses {
		if m.Addresses[i], b, err = parseAddress(b); err != nil {
			return err
		}
	}
	return nil
}

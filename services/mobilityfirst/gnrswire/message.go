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

// Kind is what is asked.
type Kind uint8

// The kinds of messages.
const (
	Insert Kind = 0
	Lookup Kind = 1
	Update Kind = 2
)

// answer marks answers, in their kind.
const answer = 0x80

var kindNames = [...]string{"insert", "lookup", "update"}

// String is the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Errors of parsing and writing, which wrap them, besides frame.ErrShort and frame.ErrLayout.
var (
	// ErrKind is for a message of a kind that is not known.
	ErrKind = errors.New("its kind is not known")
	// ErrLong is for a message that does not fit into its length, or its options into theirs.
	ErrLong = errors.New("it is too long")
)

// Message asks, or answers.
type Message struct {
	Version uint8
	Kind    Kind
	// Answer says that it answers a message of its kind.
	Answer bool
	// Request is the number by which whoever asks knows the answer.
	Request uint32
	// Requester is who asks, where the answer goes.
	Requester Address
	Options   []Option

	// GUID is the name that is asked about; none in an answer.
	GUID frame.GUID
	// Code is how an answer ends, zero for well.
	Code uint16
	// Addresses are what the name stands for: in an insert, an update, or an answer.
	Addresses []Address
}

const (
	headerSize = 12
	guidSize   = len(frame.GUID{})
	answerSize = 8 // code, padding and count
	countSize  = 4
)

// AppendTo appends the message to b. The error wraps ErrLong or ErrKind; b comes back as given then.
func (m *Message) AppendTo(b []byte) ([]byte, error) {
	if m.Kind > Update {
		return b, fmt.Errorf("message of %v: %w", m.Kind, ErrKind)
	}
	start := len(b)
	kind := uint8(m.Kind)
	if m.Answer {
		kind |= answer
	}
	b = append(b, m.Version, kind, 0, 0)
	b = be.AppendUint32(b, m.Request)
	options := headerSize + m.Requester.size()
	payload := options
	for _, o := range m.Options {
		if len(o.Value) > 0xff || o.Kind >= last {
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

// hasAddresses says whether addresses belong to the message.
func (m *Message) hasAddresses() bool { return m.Answer || m.Kind != Lookup }

// Parse reads a message. What follows it in the datagram is ignored. The error wraps frame.ErrShort,
// ErrKind or frame.ErrLayout.
func Parse(b []byte) (*Message, error) {
	if len(b) < headerSize {
		return nil, fmt.Errorf("message of %d bytes: %w", len(b), frame.ErrShort)
	}
	m := &Message{Version: b[0], Kind: Kind(b[1] &^ answer), Answer: b[1]&answer != 0, Request: be.Uint32(b[4:])}
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
	end := payload // of the address
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

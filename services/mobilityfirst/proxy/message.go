package proxy

import (
	"encoding/binary"
	"errors"
)

// kind is the kind of a message.
type kind byte

const (
	kindOpen kind = iota + 1
	kindData
	kindCredit
	kindEnd
	kindReset
)

// message is the content of a chunk.
type message struct {
	kind   kind
	number uint64 // the number of the connection
	body   []byte
	offset uint64 // of data and end: the number of bytes sent before
}

const headerSize, offsetSize = 1 + 8, 8

var (
	be = binary.BigEndian

	errMessage = errors.New("no message of a proxy")
)

func (m message) appendTo(b []byte) []byte {
	b = be.AppendUint64(append(b, byte(m.kind)), m.number)
	if m.hasOffset() {
		b = be.AppendUint64(b, m.offset)
	}
	return append(b, m.body...)
}

// hasOffset reports whether the message has an offset.
func (m message) hasOffset() bool { return m.kind == kindData || m.kind == kindEnd }

// credit returns a message that gives credit for n more bytes.
func credit(number uint64, n int) message {
	return message{kind: kindCredit, number: number, body: be.AppendUint32(nil, uint32(n))}
}

// parse parses a message, which shares memory with b.
func parse(b []byte) (message, error) {
	if len(b) < headerSize {
		return message{}, errMessage
	}
	m := message{kind: kind(b[0]), number: be.Uint64(b[1:]), body: b[headerSize:]}
	if m.hasOffset() {
		if len(m.body) < offsetSize {
			return message{}, errMessage
		}
		m.offset, m.body = be.Uint64(m.body), m.body[offsetSize:]
	}
	switch {
	case m.kind < kindOpen || m.kind > kindReset,
		m.kind == kindCredit && len(m.body) != 4,
		m.kind == kindData && len(m.body) == 0,
		m.kind != kindCredit && m.kind != kindData && len(m.body) > 0:
		return message{}, errMessage
	}
	return m, nil
}

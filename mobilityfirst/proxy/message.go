package proxy

import (
	"encoding/binary"
	"errors"
)

// kind is that of a message.
type kind byte

const (
	kindOpen kind = iota + 1
	kindData
	kindCredit
	kindEnd
	kindReset
)

// message is what stands in a chunk.
type message struct {
	kind   kind
	number uint64 // of the connection
	body   []byte
}

const headerSize = 1 + 8

var (
	be = binary.BigEndian

	errMessage = errors.New("no message of a proxy")
)

func (m message) appendTo(b []byte) []byte {
	return append(be.AppendUint64(append(b, byte(m.kind)), m.number), m.body...)
}

// credit gives credit for n more bytes.
func credit(number uint64, n int) message {
	return message{kindCredit, number, be.AppendUint32(nil, uint32(n))}
}

// parse reads a message, which shares memory with b.
func parse(b []byte) (message, error) {
	if len(b) < headerSize {
		return message{}, errMessage
	}
	m := message{kind(b[0]), be.Uint64(b[1:]), b[headerSize:]}
	switch {
	case m.kind < kindOpen || m.kind > kindReset,
		m.kind == kindCredit && len(m.body) != 4,
		m.kind == kindData && len(m.body) == 0,
		m.kind != kindCredit && m.kind != kindData && len(m.body) > 0:
		return message{}, errMessage
	}
	return m, nil
}

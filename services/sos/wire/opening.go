package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// OpeningSize is the size of an Opening on the wire.
	OpeningSize = 80
	// AnswerSize is the size of an Answer on the wire.
	AnswerSize = 56
	// PrefixSize is the number of bytes by which CheckPrefix recognises an opening.
	PrefixSize = 6

	magic       = "SOS\x00"
	version     = 1
	kindOpening = 1
	kindAnswer  = 2
	macSize     = sha256.Size
)

var (
	// ErrNotSOS means that the bytes are no opening or answer of this protocol version.
	ErrNotSOS = errors.New("not an SOS opening of version 1")
	// ErrProof means that the other side does not hold the session's key.
	ErrProof = errors.New("wrong proof of the session key")
)

// Opening is the first message of the dialling side.
type Opening struct {
	Index      uint16   // index of the connection within its session
	Window     uint32   // KiB of payload that the other side may send before the first Window frame
	Generation uint32   // grows with each attempt for the same index
	Session    [16]byte // session id
	Nonce      [16]byte // random
}

// AppendTo appends the opening and its proof with the session's key to b.
func (o Opening) AppendTo(b []byte, key []byte) []byte {
	start := len(b)
	b = append(b, magic...)
	b = append(b, version, kindOpening)
	b = binary.BigEndian.AppendUint16(b, o.Index)
	b = binary.BigEndian.AppendUint32(b, o.Generation)
	b = binary.BigEndian.AppendUint32(b, o.Window)
	b = append(b, o.Session[:]...)
	b = append(b, o.Nonce[:]...)
	return append(b, proof(key, "sluice sos opening", b[start:])...)
}

// CheckPrefix returns ErrNotSOS if b, which has PrefixSize bytes, cannot be the beginning of an
// opening.
func CheckPrefix(b []byte) error {
	if len(b) < PrefixSize || string(b[:4]) != magic || b[4] != version || b[5] != kindOpening {
		return ErrNotSOS
	}
	return nil
}

// ParseOpening reads an opening of OpeningSize bytes. The caller looks up the session's key by the
// id, and calls VerifyOpening before it trusts the opening.
func ParseOpening(b []byte) (Opening, error) {
	if len(b) != OpeningSize {
		return Opening{}, fmt.Errorf("%w: %d bytes, want %d", ErrNotSOS, len(b), OpeningSize)
	}
	if err := CheckPrefix(b); err != nil {
		return Opening{}, err
	}
	o := Opening{
		Index:      binary.BigEndian.Uint16(b[6:]),
		Generation: binary.BigEndian.Uint32(b[8:]),
		Window:     binary.BigEndian.Uint32(b[12:]),
	}
	copy(o.Session[:], b[16:])
	copy(o.Nonce[:], b[32:])
	return o, nil
}

// VerifyOpening checks the proof in the raw opening b.
func VerifyOpening(b []byte, key []byte) error {
	if len(b) != OpeningSize {
		return ErrNotSOS
	}
	body := b[:OpeningSize-macSize]
	return verify(b[len(body):], proof(key, "sluice sos opening", body))
}

// Answer is the message of the accepting side after a valid opening.
type Answer struct {
	Nonce [16]byte // random
}

// AppendTo appends the answer to b, with a proof with the key over the raw opening and the answer.
func (a Answer) AppendTo(b, opening, key []byte) []byte {
	start := len(b)
	b = append(b, magic...)
	b = append(b, version, kindAnswer, 0, 0)
	b = append(b, a.Nonce[:]...)
	return append(b, proof(key, "sluice sos answer", opening, b[start:])...)
}

// ParseAnswer reads an answer of AnswerSize bytes and checks its proof against
// the raw opening that it answers.
func ParseAnswer(b, opening, key []byte) (Answer, error) {
	if len(b) != AnswerSize {
		return Answer{}, fmt.Errorf("%w: answer of %d bytes, want %d", ErrNotSOS, len(b), AnswerSize)
	}
	if string(b[:4]) != magic || b[4] != version || b[5] != kindAnswer {
		return Answer{}, ErrNotSOS
	}
	body := b[:AnswerSize-macSize]
	if err := verify(b[len(body):], proof(key, "sluice sos answer", opening, body)); err != nil {
		return Answer{}, err
	}
	var a Answer
	copy(a.Nonce[:], b[8:])
	return a, nil
}

// proof returns the HMAC of a label and the parts. The label keeps a proof of one kind from
// passing for another.
func proof(key []byte, label string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(label))
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

func verify(got, want []byte) error {
	if !hmac.Equal(got, want) {
		return ErrProof
	}
	return nil
}

package compute

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// MaxValid is how long from now on an order holds at most. Clocks may differ by custody.MaxSkew: for so much longer
	// the function's owner can send a destination that has forgotten the flow a result once more.
	MaxValid = time.Hour
	// MaxPayload is how many bytes a function is called on, and how many a result has, at most: a little less than 4 MiB.
	MaxPayload = 4<<20 - Overhead - hostapi.Overhead
	// Overhead is how many bytes a chunk has beside the payload, or the result.
	Overhead = 1 + orderSize

	orderSize = ed25519.SignatureSize + ed25519.PublicKeySize + 2*len(frame.GUID{}) + 8 + 8 + 8 + sha256.Size
)

// What is wrong with chunks; errors wrap these.
var (
	// ErrMessage is for bytes that are no call, no result and no failure.
	ErrMessage = errors.New("not about a function")
	// ErrSignature is for an order that its sender has not signed, or that is another's.
	ErrSignature = errors.New("its sender has not ordered it")
	// ErrOver is for an order that does not hold any more, or longer than any may.
	ErrOver = errors.New("the order does not hold now")
)

var be = binary.BigEndian

// Order is what a sender has signed: that a function be called on a payload, and the result brought to a destination.
type Order struct {
	Source, Function, Destination frame.GUID
	// Flow is drawn by the sender, for calls whose results are to arrive in order. Number goes up from one to the
	// next, from 1 on.
	Flow, Number uint64
	// Until is when it does not hold any more, to a millisecond.
	Until time.Time
	// Sum is the SHA-256 of the payload.
	Sum [sha256.Size]byte

	key       [ed25519.PublicKeySize]byte
	signature [ed25519.SignatureSize]byte
}

// purpose keeps the signature from being of use for anything else that a key signs.
const purpose = "sluice: a function is to be called, 1\x00"

// Sign has an order be of the name that belongs to a private key, about a payload.
func (o *Order) Sign(key ed25519.PrivateKey, payload []byte) {
	o.key = [ed25519.PublicKeySize]byte(key.Public().(ed25519.PublicKey))
	o.Source, o.Sum = record.NameOf(o.key[:]), sha256.Sum256(payload)
	o.signature = [ed25519.SignatureSize]byte(ed25519.Sign(key, o.appendSigned([]byte(purpose))))
}

// Verify says whether its sender has signed it. The error wraps ErrSignature.
func (o *Order) Verify() error {
	if !ed25519.Verify(o.key[:], o.appendSigned([]byte(purpose)), o.signature[:]) {
		return fmt.Errorf("order %d of %v: %w", o.Number, o.Source, ErrSignature)
	}
	return nil
}

// holds says whether it holds, by clocks that differ by skew at most. The error wraps ErrOver.
func (o *Order) holds(now time.Time, skew time.Duration) error {
	if now.After(o.Until.Add(skew)) || o.Until.After(now.Add(MaxValid+skew)) {
		return fmt.Errorf("order %d of %v until %v: %w", o.Number, o.Source, o.Until.UTC().Format(time.RFC3339), ErrOver)
	}
	return nil
}

func (o *Order) appendSigned(b []byte) []byte {
	b = append(append(append(b, o.key[:]...), o.Function[:]...), o.Destination[:]...)
	b = be.AppendUint64(be.AppendUint64(b, o.Flow), o.Number)
	return append(be.AppendUint64(b, uint64(o.Until.UnixMilli())), o.Sum[:]...)
}

// kind says what a chunk holds behind the order.
type kind uint8

const (
	call    kind = 1 + iota // what the function is to be called on
	result                  // what it has made of that
	failure                 // why it has not
)

// message is what chunks with the service frame.Compute hold: the kind (1 byte), the order's signature (64 bytes), the
// public key of its sender (32), function (20), destination (20), flow (8), number (8), until when in ms since 1970 (8),
// the payload's sum (32), and the body.
type message struct {
	kind kind
	Order
	body []byte
}

func (m *message) append() []byte {
	b := append(make([]byte, 0, Overhead+len(m.body)), byte(m.kind))
	return append(m.appendSigned(append(b, m.signature[:]...)), m.body...)
}

// maxTime is the latest time, in ms: in the year 9999.
const maxTime = 253_402_300_799_999

// parse reads the payload of a chunk, whose memory it shares. It does not verify. The error wraps ErrMessage.
func parse(b []byte) (*message, error) {
	if len(b) < Overhead || len(b) > Overhead+MaxPayload {
		return nil, fmt.Errorf("%d bytes: %w", len(b), ErrMessage)
	}
	m := &message{kind: kind(b[0]), body: b[Overhead:]}
	b = b[1:]
	for _, field := range [][]byte{m.signature[:], m.key[:], m.Function[:], m.Destination[:]} {
		b = b[copy(field, b):]
	}
	m.Source = record.NameOf(m.key[:])
	m.Flow, m.Number = be.Uint64(b), be.Uint64(b[8:])
	ms := be.Uint64(b[16:])
	copy(m.Sum[:], b[24:])
	if m.kind < call || m.kind > failure || m.Number == 0 || ms > maxTime {
		return nil, fmt.Errorf("kind %d, number %d, until %d ms: %w", m.kind, m.Number, ms, ErrMessage)
	}
	m.Until = time.UnixMilli(int64(ms))
	return m, nil
}

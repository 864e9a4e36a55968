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
	// MaxValid is the longest validity of an order. Because clocks may differ by custody.MaxSkew,
	// an order is accepted for that much longer. As long as it is accepted, the function's owner
	// can send a result again to a destination that has forgotten the flow.
	MaxValid = time.Hour
	// MaxPayload is the maximum size in bytes of a function's payload and of its result: a little
	// less than 4 MiB.
	MaxPayload = 4<<20 - Overhead - hostapi.Overhead
	// Overhead is the size in bytes of a chunk without the payload or result.
	Overhead = 1 + orderSize

	orderSize = ed25519.SignatureSize + ed25519.PublicKeySize + 2*len(frame.GUID{}) + 8 + 8 + 8 + sha256.Size
)

// Errors that functions of this package wrap.
var (
	// ErrMessage means that bytes are not a call, a result or a failure.
	ErrMessage = errors.New("not a call, a result or a failure of a function")
	// ErrSignature means that the sender has not signed the order, or that the order is about
	// another sender, function, payload or destination than the message.
	ErrSignature = errors.New("not signed by the sender of the order")
	// ErrExpired means that an order has expired, or is valid for longer than allowed.
	ErrExpired = errors.New("the order has expired, or is valid for too long")
)

var be = binary.BigEndian

// Order is a sender's signed order to call a function on a payload and to send the result to a
// destination.
type Order struct {
	Source, Function, Destination frame.GUID
	// Flow is a random number of the sender, shared by calls whose results have to arrive in order.
	// Number increases from one call to the next, from 1 on.
	Flow, Number uint64
	// Until is when the order expires, in milliseconds.
	Until time.Time
	// Sum is the SHA-256 hash of the payload.
	Sum [sha256.Size]byte

	key       [ed25519.PublicKeySize]byte
	signature [ed25519.SignatureSize]byte
}

// purpose separates these signatures from all others that a key makes.
const purpose = "sluice: a function is to be called, 1\x00"

// Sign signs the order for a payload with the private key of its source.
func (o *Order) Sign(key ed25519.PrivateKey, payload []byte) {
	o.key = [ed25519.PublicKeySize]byte(key.Public().(ed25519.PublicKey))
	o.Source, o.Sum = record.NameOf(o.key[:]), sha256.Sum256(payload)
	o.signature = [ed25519.SignatureSize]byte(ed25519.Sign(key, o.appendSigned([]byte(purpose))))
}

// Verify checks the sender's signature. The error wraps ErrSignature.
func (o *Order) Verify() error {
	if !ed25519.Verify(o.key[:], o.appendSigned([]byte(purpose)), o.signature[:]) {
		return fmt.Errorf("order %d of %v: %w", o.Number, o.Source, ErrSignature)
	}
	return nil
}

// checkValid checks that the order is valid now, by clocks that differ by skew at most. The error
// wraps ErrExpired.
func (o *Order) checkValid(now time.Time, skew time.Duration) error {
	if now.After(o.Until.Add(skew)) || o.Until.After(now.Add(MaxValid+skew)) {
		return fmt.Errorf("order %d of %v until %v: %w", o.Number, o.Source, o.Until.UTC().Format(time.RFC3339), ErrExpired)
	}
	return nil
}

func (o *Order) appendSigned(b []byte) []byte {
	b = append(append(append(b, o.key[:]...), o.Function[:]...), o.Destination[:]...)
	b = be.AppendUint64(be.AppendUint64(b, o.Flow), o.Number)
	return append(be.AppendUint64(b, uint64(o.Until.UnixMilli())), o.Sum[:]...)
}

// kind is the kind of the body behind an order.
type kind uint8

const (
	call    kind = 1 + iota // the payload of the function
	result                  // its result
	failure                 // the reason of its failure
)

// message is the payload of chunks with the service frame.Compute: the kind (1 byte), the order's
// signature (64 bytes), the public key of its sender (32), function (20), destination (20), flow
// (8), number (8), expiry in ms since 1970 (8), the payload's hash (32), and the body.
type message struct {
	kind kind
	Order
	body []byte
}

func (m *message) append() []byte {
	b := append(make([]byte, 0, Overhead+len(m.body)), byte(m.kind))
	return append(m.appendSigned(append(b, m.signature[:]...)), m.body...)
}

// maxTime is the latest time in ms, in the year 9999.
const maxTime = 253_402_300_799_999

// parse parses the payload of a chunk and shares its memory. It does not verify the order. The
// error wraps ErrMessage.
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

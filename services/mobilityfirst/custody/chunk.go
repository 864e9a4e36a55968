package custody

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// MaxKept is the longest time for which a chunk may be stored.
	MaxKept = 7 * 24 * time.Hour
	// MaxSkew is the maximum difference between the clocks of a chunk's sender and destination.
	MaxSkew = 24 * time.Hour
	// MaxPayload is the maximum size of a chunk's payload in bytes; a stream can have that many in
	// flight.
	MaxPayload = 4 << 20
	// Overhead is the size of a chunk in bytes without its payload.
	Overhead = ed25519.SignatureSize + headerSize

	headerSize = ed25519.PublicKeySize + len(frame.GUID{}) + 8 + 8 + 2 + 8
)

// Errors that functions of this package wrap.
var (
	// ErrLayout means that the bytes are not a chunk.
	ErrLayout = errors.New("not a signed chunk")
	// ErrSignature means that the signature is not the sender's.
	ErrSignature = errors.New("not signed by its sender")
	// ErrExpired means that a chunk has expired, or is valid for longer than allowed.
	ErrExpired = errors.New("expired, or valid for too long")
)

var be = binary.BigEndian

// ID identifies a chunk.
type ID struct {
	Source, Destination frame.GUID
	// Flow is a random number of the sender's host, shared by chunks that have to arrive in order.
	Flow uint64
	// Number increases from one chunk of a flow to the next, from 1 on, possibly with gaps.
	Number uint64
}

// InFlow returns the ID without the number, which all chunks of a flow share.
func (id ID) InFlow() ID { id.Number = 0; return id }

// Chunk is a chunk that its sender has signed.
type Chunk struct {
	ID
	// Service is the service that the sender has requested.
	Service frame.Service
	// Until is when the chunk expires, in milliseconds.
	Until time.Time
	// Payload is the sender's data.
	Payload []byte

	key       [ed25519.PublicKeySize]byte
	signature [ed25519.SignatureSize]byte
}

// Sign signs the chunk with the private key of its source. No other goroutine may use the key at
// the same time.
func (c *Chunk) Sign(key ed25519.PrivateKey) {
	c.key = [ed25519.PublicKeySize]byte(key.Public().(ed25519.PublicKey))
	c.Source = record.NameOf(c.key[:])
	c.signature = [ed25519.SignatureSize]byte(ed25519.Sign(key, c.signed()))
}

// Verify checks the sender's signature. The error wraps ErrSignature.
func (c *Chunk) Verify() error {
	if !ed25519.Verify(c.key[:], c.signed(), c.signature[:]) {
		return fmt.Errorf("chunk %d from %v: %w", c.Number, c.Source, ErrSignature)
	}
	return nil
}

// CheckValid checks that the destination may accept the chunk now. It does not verify the
// signature. The error wraps ErrExpired.
func (c *Chunk) CheckValid(now time.Time) error {
	if now.After(c.Until.Add(MaxSkew)) || c.Until.After(now.Add(MaxKept+MaxSkew)) {
		return fmt.Errorf("chunk %d from %v until %v: %w", c.Number, c.Source, c.Until.UTC().Format(time.RFC3339), ErrExpired)
	}
	return nil
}

// purpose separates these signatures from all others that a key makes.
const purpose = "sluice: a chunk that may be kept, 1\x00"

// signed returns the bytes that the signature covers. They contain the payload as a hash.
func (c *Chunk) signed() []byte {
	sum := sha256.Sum256(c.Payload)
	return append(c.appendHeader([]byte(purpose)), sum[:]...)
}

func (c *Chunk) appendHeader(b []byte) []byte {
	b = append(append(b, c.key[:]...), c.Destination[:]...)
	b = be.AppendUint64(be.AppendUint64(b, c.Flow), c.Number)
	b = be.AppendUint16(b, uint16(c.Service))
	return be.AppendUint64(b, uint64(c.Until.UnixMilli()))
}

// AppendTo appends the encoded chunk to b, as Parse reads it: signature (64 bytes), public key of
// the sender (32), destination (20), flow (8), number (8), service (2), expiry in ms since 1970
// (8), payload.
func (c *Chunk) AppendTo(b []byte) []byte {
	return append(c.appendHeader(append(b, c.signature[:]...)), c.Payload...)
}

// Parse parses a chunk that makes up all of b and shares its memory. It does not verify the
// signature. The error wraps ErrLayout.
func Parse(b []byte) (*Chunk, error) {
	if len(b) < Overhead {
		return nil, fmt.Errorf("%d bytes: %w", len(b), ErrLayout)
	}
	c := &Chunk{}
	b = b[copy(c.signature[:], b):]
	b = b[copy(c.key[:], b):]
	b = b[copy(c.Destination[:], b):]
	c.Source = record.NameOf(c.key[:])
	c.Flow, c.Number, c.Service = be.Uint64(b), be.Uint64(b[8:]), frame.Service(be.Uint16(b[16:]))
	ms := be.Uint64(b[18:])
	if ms > maxTime || c.Number == 0 || len(b) > 26+MaxPayload {
		return nil, fmt.Errorf("number %d, until %d ms, %d bytes: %w", c.Number, ms, len(b)-26, ErrLayout)
	}
	c.Until, c.Payload = time.UnixMilli(int64(ms)), b[26:]
	return c, nil
}

// CheckKeep checks that a node may store the chunk from now on. The error wraps ErrExpired.
func (c *Chunk) CheckKeep(now time.Time) error {
	if !now.Before(c.Until) || c.Until.After(now.Add(MaxKept+MaxSkew)) {
		return fmt.Errorf("chunk %d from %v until %v: %w", c.Number, c.Source, c.Until.UTC().Format(time.RFC3339), ErrExpired)
	}
	return nil
}

// maxTime is the latest time in ms, in the year 9999.
const maxTime = 253_402_300_799_999

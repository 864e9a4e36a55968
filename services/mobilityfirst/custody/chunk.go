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
	// MaxKept is the longest time for which a chunk may be kept.
	MaxKept = 7 * 24 * time.Hour
	// MaxSkew is how much the clocks of a chunk's sender and destination may differ.
	MaxSkew = 24 * time.Hour
	// MaxPayload is how many bytes of payload a chunk has at most: so many can be under way at once.
	MaxPayload = 4 << 20
	// Overhead is how many bytes a chunk has beside its payload.
	Overhead = ed25519.SignatureSize + headerSize

	headerSize = ed25519.PublicKeySize + len(frame.GUID{}) + 8 + 8 + 2 + 8
)

// What is wrong with chunks; errors wrap these.
var (
	// ErrLayout is for bytes that are no chunk.
	ErrLayout = errors.New("not a chunk that was signed to be kept")
	// ErrSignature is for one that its sender has not signed.
	ErrSignature = errors.New("its sender has not signed it")
	// ErrOver is for one that does not hold any more, or longer than any may.
	ErrOver = errors.New("it does not hold now")
)

var be = binary.BigEndian

// ID is what tells a chunk from all others.
type ID struct {
	Source, Destination frame.GUID
	// Flow is drawn by the sender's host, for chunks that are to arrive in order.
	Flow uint64
	// Number goes up from one chunk of a flow to the next, from 1 on; some may be left out.
	Number uint64
}

// InFlow is what the chunks of one flow have in common: an ID without a number.
func (id ID) InFlow() ID { id.Number = 0; return id }

// Chunk is one that its sender has signed.
type Chunk struct {
	ID
	// Service is what its sender has asked for.
	Service frame.Service
	// Until is when it does not hold any more, to a millisecond.
	Until time.Time
	// Payload is what its sender has sent.
	Payload []byte

	key       [ed25519.PublicKeySize]byte
	signature [ed25519.SignatureSize]byte
}

// Sign has a chunk be of the name that belongs to a private key, which may not be used for anything
// else at that time.
func (c *Chunk) Sign(key ed25519.PrivateKey) {
	c.key = [ed25519.PublicKeySize]byte(key.Public().(ed25519.PublicKey))
	c.Source = record.NameOf(c.key[:])
	c.signature = [ed25519.SignatureSize]byte(ed25519.Sign(key, c.signed()))
}

// Verify says whether its sender has signed it whole. The error wraps ErrSignature.
func (c *Chunk) Verify() error {
	if !ed25519.Verify(c.key[:], c.signed(), c.signature[:]) {
		return fmt.Errorf("chunk %d from %v: %w", c.Number, c.Source, ErrSignature)
	}
	return nil
}

// Holds says whether its destination takes it now. It costs nothing. The error wraps ErrOver.
func (c *Chunk) Holds(now time.Time) error {
	if now.After(c.Until.Add(MaxSkew)) || c.Until.After(now.Add(MaxKept+MaxSkew)) {
		return fmt.Errorf("chunk %d from %v until %v: %w", c.Number, c.Source, c.Until.UTC().Format(time.RFC3339), ErrOver)
	}
	return nil
}

// purpose keeps the signature from being of use for anything else that a key signs.
const purpose = "sluice: a chunk that may be kept, 1\x00"

// signed is what the signature is over: the payload by its hash.
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

// AppendTo appends the chunk to b, as Parse reads it: signature (64 bytes), public key of the sender (32),
// destination (20), flow (8), number (8), service (2), until when in ms since 1970 (8), payload.
func (c *Chunk) AppendTo(b []byte) []byte {
	return append(c.appendHeader(append(b, c.signature[:]...)), c.Payload...)
}

// Parse reads a chunk that makes up all of b. It shares b's memory. The error wraps ErrLayout. It does not
// verify.
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

// May says whether it may be kept from now on. The error wraps ErrOver.
func (c *Chunk) May(now time.Time) error {
	if !now.Before(c.Until) || c.Until.After(now.Add(MaxKept+MaxSkew)) {
		return fmt.Errorf("chunk %d from %v until %v: %w", c.Number, c.Source, c.Until.UTC().Format(time.RFC3339), ErrOver)
	}
	return nil
}

// maxTime is the latest time, in ms: in the year 9999.
const maxTime = 253_402_300_799_999

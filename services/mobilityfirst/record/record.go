package record

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
)

const (
	// MaxAddresses bounds the places at which a name can be.
	MaxAddresses = 8
	// MaxAddress is the longest address, in bytes.
	MaxAddress = 32
	// MaxValidity is the longest time for which a record may be valid.
	MaxValidity = 24 * time.Hour
	// MaxSkew is how much the clocks of the signer and of the verifier may differ.
	MaxSkew = time.Minute
)

// What is wrong with records; errors wrap these.
var (
	// ErrSignature is for one that the owner of the name has not signed.
	ErrSignature = errors.New("it is not signed by the owner of its name")
	// ErrOver is for one that does not hold any more, or longer than any may.
	ErrOver = errors.New("it does not hold now")
	// ErrLimits is for one that says more than a record may.
	ErrLimits = errors.New("it has too many addresses, or one that is too long")
	// ErrLayout is for bytes that are no record.
	ErrLayout = errors.New("they are no record")
)

var be = binary.BigEndian

// Record says where a name is.
type Record struct {
	// Key is the public key of which the name is the hash.
	Key [ed25519.PublicKeySize]byte
	// Number is higher than in any record of the name before.
	Number uint64
	// Until is how long it holds, in seconds since 1970.
	Until int64
	// Addresses are where the name is. None: nowhere, for now.
	Addresses []gnrswire.Address
	// Signature is that of its owner.
	Signature [ed25519.SignatureSize]byte
}

// NameOf is the name of whoever has the private key to a public key: the first bytes of its SHA-256.
func NameOf(key ed25519.PublicKey) frame.GUID {
	sum := sha256.Sum256(key)
	return frame.GUID(sum[:len(frame.GUID{})])
}

// NameOfOwner is the name of whoever has a private key.
func NameOfOwner(key ed25519.PrivateKey) frame.GUID {
	return NameOf(key.Public().(ed25519.PublicKey))
}

// GUID is the name that it is of.
func (r *Record) GUID() frame.GUID { return NameOf(r.Key[:]) }

// Sign makes a record of the name that belongs to a private key. The error wraps ErrLimits, or ErrOver
// for one that would hold for too long.
func Sign(key ed25519.PrivateKey, number uint64, until time.Time, addresses ...gnrswire.Address) (*Record, error) {
	r := &Record{Key: [ed25519.PublicKeySize]byte(key.Public().(ed25519.PublicKey)), Number: number, Until: until.Unix(), Addresses: addresses}
	if err := r.limits(); err != nil {
		return nil, err
	}
	if until.After(time.Now().Add(MaxValidity)) {
		return nil, r.over()
	}
	r.Signature = [ed25519.SignatureSize]byte(ed25519.Sign(key, r.signed()))
	return r, nil
}

// Verify says whether the owner of the name has signed it, and whether it holds now. The error wraps
// ErrSignature, ErrOver or ErrLimits.
func (r *Record) Verify(now time.Time) error {
	if err := r.holds(now); err != nil {
		return err
	}
	return r.verifySignature()
}

// holds says what is wrong with it, but for the signature.
func (r *Record) holds(now time.Time) error {
	if err := r.limits(); err != nil {
		return err
	}
	if r.Over(now) || r.Until > now.Add(MaxValidity+MaxSkew).Unix() {
		return r.over()
	}
	return nil
}

func (r *Record) verifySignature() error {
	if !ed25519.Verify(r.Key[:], r.signed(), r.Signature[:]) {
		return fmt.Errorf("record of %v: %w", r.GUID(), ErrSignature)
	}
	return nil
}

// Over says whether it does not hold any more.
func (r *Record) Over(now time.Time) bool { return now.Unix() > r.Until }

func (r *Record) over() error {
	return fmt.Errorf("record of %v until %v: %w", r.GUID(), time.Unix(r.Until, 0).UTC().Format(time.RFC3339), ErrOver)
}

func (r *Record) limits() error {
	if len(r.Addresses) > MaxAddresses {
		return fmt.Errorf("record of %d addresses, %d allowed: %w", len(r.Addresses), MaxAddresses, ErrLimits)
	}
	for _, a := range r.Addresses {
		if len(a.Value) > MaxAddress {
			return fmt.Errorf("record with an address of %d bytes, %d allowed: %w", len(a.Value), MaxAddress, ErrLimits)
		}
	}
	return nil
}

// purpose keeps the signature from being of use for anything else that a key signs.
const purpose = "sluice: where a name is, 1\x00"

// signed is what the signature is over.
func (r *Record) signed() []byte { return r.appendBody(append([]byte(purpose), r.Key[:]...)) }

const (
	fixed         = ed25519.PublicKeySize + ed25519.SignatureSize
	bodyFixed     = 8 + 8 + 1 // number, until, count
	addressHeader = 2 + 1     // kind, length
)

func (r *Record) appendBody(b []byte) []byte {
	b = be.AppendUint64(be.AppendUint64(b, r.Number), uint64(r.Until))
	b = append(b, byte(len(r.Addresses)))
	for _, a := range r.Addresses {
		b = append(append(be.AppendUint16(b, uint16(a.Kind)), byte(len(a.Value))), a.Value...)
	}
	return b
}

// AppendTo appends the record to b, as Parse reads it.
func (r *Record) AppendTo(b []byte) []byte {
	return r.appendBody(append(append(b, r.Key[:]...), r.Signature[:]...))
}

// Parse reads a record that makes up all of b. It shares b's memory. The error wraps ErrLayout or
// ErrLimits. It does not verify.
func Parse(b []byte) (*Record, error) {
	if len(b) < fixed+bodyFixed {
		return nil, fmt.Errorf("%d bytes: %w", len(b), ErrLayout)
	}
	r := &Record{Key: [ed25519.PublicKeySize]byte(b), Signature: [ed25519.SignatureSize]byte(b[ed25519.PublicKeySize:])}
	b = b[fixed:]
	r.Number, r.Until = be.Uint64(b), int64(be.Uint64(b[8:]))
	count := int(b[16])
	b = b[bodyFixed:]
	for range count {
		if len(b) < addressHeader || len(b) < addressHeader+int(b[2]) {
			return nil, fmt.Errorf("%d bytes for an address: %w", len(b), ErrLayout)
		}
		end := addressHeader + int(b[2])
		r.Addresses = append(r.Addresses, gnrswire.Address{Kind: gnrswire.AddressKind(be.Uint16(b)), Value: b[addressHeader:end]})
		b = b[end:]
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%d bytes more: %w", len(b), ErrLayout)
	}
	return r, r.limits()
}

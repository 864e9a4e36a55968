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
	// MaxAddresses is the maximum number of addresses of a name.
	MaxAddresses = 8
	// MaxAddress is the longest address, in bytes.
	MaxAddress = 32
	// MaxValidity is the longest time for which a record may be valid.
	MaxValidity = 24 * time.Hour
	// MaxSkew is the maximum difference between the clocks of the signer and the verifier.
	MaxSkew = time.Minute
)

// Errors that functions of this package wrap.
var (
	// ErrSignature means that the owner of the name has not signed the record.
	ErrSignature = errors.New("it is not signed by the owner of its name")
	// ErrExpired means that the record has expired, or is valid for longer than allowed.
	ErrExpired = errors.New("the record has expired, or is valid for too long")
	// ErrLimits means that the record has too many addresses, or too long ones.
	ErrLimits = errors.New("it has too many addresses, or one that is too long")
	// ErrLayout means that the bytes are not a record.
	ErrLayout = errors.New("not a record")
)

var be = binary.BigEndian

// Record contains the addresses of a name.
type Record struct {
	// Key is the public key whose hash is the name.
	Key [ed25519.PublicKeySize]byte
	// Number is higher than in any record of the name before.
	Number uint64
	// Until is when the record expires, in seconds since 1970.
	Until int64
	// Addresses lists where the name is. If it is empty, the name has no address for now.
	Addresses []gnrswire.Address
	// Signature is the signature of the name's owner.
	Signature [ed25519.SignatureSize]byte
}

// NameOf returns the name that belongs to a public key: the first bytes of its SHA-256 hash.
func NameOf(key ed25519.PublicKey) frame.GUID {
	sum := sha256.Sum256(key)
	return frame.GUID(sum[:len(frame.GUID{})])
}

// NameOfOwner returns the name that belongs to a private key.
func NameOfOwner(key ed25519.PrivateKey) frame.GUID {
	return NameOf(key.Public().(ed25519.PublicKey))
}

// GUID returns the name.
func (r *Record) GUID() frame.GUID { return NameOf(r.Key[:]) }

// Sign returns a signed record of the name that belongs to a private key. The error wraps
// ErrLimits, or ErrExpired for a record that would be valid for too long.
func Sign(key ed25519.PrivateKey, number uint64, until time.Time, addresses ...gnrswire.Address) (*Record, error) {
	r := &Record{Key: [ed25519.PublicKeySize]byte(key.Public().(ed25519.PublicKey)), Number: number, Until: until.Unix(), Addresses: addresses}
	if err := r.checkLimits(); err != nil {
		return nil, err
	}
	if until.After(time.Now().Add(MaxValidity)) {
		return nil, r.expiredError()
	}
	r.Signature = [ed25519.SignatureSize]byte(ed25519.Sign(key, r.signed()))
	return r, nil
}

// Verify checks that the owner of the name has signed the record, and that it is valid now. The
// error wraps ErrSignature, ErrExpired or ErrLimits.
func (r *Record) Verify(now time.Time) error {
	if err := r.checkValid(now); err != nil {
		return err
	}
	return r.verifySignature()
}

// checkValid checks everything but the signature.
func (r *Record) checkValid(now time.Time) error {
	if err := r.checkLimits(); err != nil {
		return err
	}
	if r.Expired(now) || r.Until > now.Add(MaxValidity+MaxSkew).Unix() {
		return r.expiredError()
	}
	return nil
}

func (r *Record) verifySignature() error {
	if !ed25519.Verify(r.Key[:], r.signed(), r.Signature[:]) {
		return fmt.Errorf("record of %v: %w", r.GUID(), ErrSignature)
	}
	return nil
}

// Expired reports whether the record has expired.
func (r *Record) Expired(now time.Time) bool { return now.Unix() > r.Until }

func (r *Record) expiredError() error {
	return fmt.Errorf("record of %v until %v: %w", r.GUID(), time.Unix(r.Until, 0).UTC().Format(time.RFC3339), ErrExpired)
}

func (r *Record) checkLimits() error {
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

// purpose separates these signatures from all others that a key makes.
const purpose = "sluice: where a name is, 1\x00"

// signed returns the bytes that the signature covers.
func (r *Record) signed() []byte { return r.appendBody(append([]byte(purpose), r.Key[:]...)) }

const (
	fixedSize     = ed25519.PublicKeySize + ed25519.SignatureSize
	bodyFixedSize = 8 + 8 + 1 // number, until, count
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

// AppendTo appends the encoded record to b, as Parse reads it.
func (r *Record) AppendTo(b []byte) []byte {
	return r.appendBody(append(append(b, r.Key[:]...), r.Signature[:]...))
}

// Parse parses a record that makes up all of b and shares its memory. It does not verify the
// record. The error wraps ErrLayout or ErrLimits.
func Parse(b []byte) (*Record, error) {
	if len(b) < fixedSize+bodyFixedSize {
		return nil, fmt.Errorf("%d bytes: %w", len(b), ErrLayout)
	}
	r := &Record{Key: [ed25519.PublicKeySize]byte(b), Signature: [ed25519.SignatureSize]byte(b[ed25519.PublicKeySize:])}
	b = b[fixedSize:]
	r.Number, r.Until = be.Uint64(b), int64(be.Uint64(b[8:]))
	count := int(b[16])
	b = b[bodyFixedSize:]
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
	return r, r.checkLimits()
}

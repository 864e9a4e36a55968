package record

import (
	"crypto/ed25519"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
)

// Options for the fields that the original's messages lack.
const (
	optionNumber    gnrswire.OptionKind = 16 // the record's number, 8 bytes
	optionUntil     gnrswire.OptionKind = 17 // the expiry, 8 bytes
	optionKey       gnrswire.OptionKind = 18 // the public key
	optionSignature gnrswire.OptionKind = 19 // the signature
)

// Into puts the record into a message: a write, or the answer to a lookup.
func (r *Record) Into(m *gnrswire.Message) {
	m.Options = append(m.Options,
		gnrswire.Option{Kind: optionNumber, Value: be.AppendUint64(nil, r.Number)},
		gnrswire.Option{Kind: optionUntil, Value: be.AppendUint64(nil, uint64(r.Until))},
		gnrswire.Option{Kind: optionKey, Value: r.Key[:]},
		gnrswire.Option{Kind: optionSignature, Value: r.Signature[:]},
	)
	m.Addresses = r.Addresses
	if !m.Answer {
		m.GUID = r.GUID()
	}
}

// FromMessage returns the record in a message about a name. ok is false if the message contains
// none, as in the original release. The record shares the message's memory and is not verified. The
// error wraps ErrLayout, ErrLimits, or ErrSignature if the record is of another name.
func FromMessage(m *gnrswire.Message, name frame.GUID) (r *Record, ok bool, err error) {
	r = &Record{Addresses: m.Addresses}
	found := map[gnrswire.OptionKind]bool{}
	for _, o := range m.Options {
		var want int
		switch o.Kind {
		case optionNumber, optionUntil:
			want = 8
		case optionKey:
			want = ed25519.PublicKeySize
		case optionSignature:
			want = ed25519.SignatureSize
		default:
			continue
		}
		if len(o.Value) != want || found[o.Kind] {
			return nil, true, fmt.Errorf("option %d of %d bytes: %w", o.Kind, len(o.Value), ErrLayout)
		}
		found[o.Kind] = true
		switch o.Kind {
		case optionNumber:
			r.Number = be.Uint64(o.Value)
		case optionUntil:
			r.Until = int64(be.Uint64(o.Value))
		case optionKey:
			copy(r.Key[:], o.Value)
		default:
			copy(r.Signature[:], o.Value)
		}
	}
	switch {
	case len(found) == 0:
		return nil, false, nil
	case len(found) < 4:
		return nil, true, fmt.Errorf("%d of 4 options of a record: %w", len(found), ErrLayout)
	case r.GUID() != name:
		return nil, true, fmt.Errorf("record of %v in a message about %v: %w", r.GUID(), name, ErrSignature)
	}
	return r, true, r.checkLimits()
}

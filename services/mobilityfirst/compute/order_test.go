package compute

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func nameOf(n byte) frame.GUID { return record.NameOfOwner(keyOf(n)) }

// ordered is a message with an order that its sender has signed.
func ordered(k kind, body string) *message {
	m := &message{kind: k, Order: Order{Function: nameOf(100), Destination: nameOf(3), Flow: 4, Number: 5, Until: time.Now().Add(time.Minute).Truncate(time.Millisecond)}, body: []byte(body)}
	m.Sign(keyOf(1), m.body)
	return m
}

// What is written is read as it was; whatever is changed of an order, its sender has not signed.
func TestForgery(t *testing.T) {
	m := ordered(call, "payload")
	whole := m.append()
	read, err := parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(read.Verify(), read.checkValid(time.Now(), 0)); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(m, read, cmp.AllowUnexported(message{}, Order{})); diff != "" {
		t.Errorf("read otherwise than written:\n%s", diff)
	}
	for i := 1; i < Overhead; i++ {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			forged, err := parse(b)
			if err == nil {
				err = forged.Verify()
			}
			if err == nil {
				t.Errorf("bit %d of byte %d can be changed", bit, i)
			}
		}
	}
}

func TestHolds(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	for _, x := range []struct {
		until time.Duration
		holds bool
	}{{-custody.MaxSkew, true}, {-custody.MaxSkew - time.Millisecond, false}, {0, true}, {MaxValid + custody.MaxSkew, true}, {MaxValid + custody.MaxSkew + time.Millisecond, false}} {
		o := Order{Until: now.Add(x.until)}
		if err := o.checkValid(now, custody.MaxSkew); (err == nil) != x.holds || err != nil && !errors.Is(err, ErrExpired) {
			t.Errorf("until %v from now: %v", x.until, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	zero, late := ordered(call, ""), ordered(call, "").append()
	zero.Number = 0
	late[Overhead-40] = 0xff
	for what, b := range map[string][]byte{
		"nothing": nil, "one byte less": ordered(call, "").append()[:Overhead-1], "number 0": zero.append(), "no kind": ordered(0, "").append(), "another kind": ordered(4, "").append(),
		"too long": append(ordered(call, "").append(), make([]byte, MaxPayload+1)...), "a time beyond all": late,
	} {
		if _, err := parse(b); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(ordered(call, "payload").append())
	f.Add(ordered(failure, "reason").append())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		if again := m.append(); !bytes.Equal(again, b) {
			t.Errorf("%x was read, %x written", b, again)
		}
		_, _, _ = m.Verify(), m.checkValid(time.Now(), 0), readable(m.body)
	})
}

package custody

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

var (
	now   = time.UnixMilli(1_800_000_000_123)
	owner = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
)

func signed() *Chunk {
	c := &Chunk{
		ID: ID{Destination: frame.GUID{1, 2}, Flow: 3, Number: 4}, Service: frame.DelayTolerant, Until: now.Add(time.Hour), Payload: []byte("payload"),
	}
	c.Sign(owner)
	return c
}

// What is written is read as it was, and holds; whatever is changed of it, its sender has not signed.
func TestForgery(t *testing.T) {
	c := signed()
	if want := record.NameOfOwner(owner); c.Source != want {
		t.Errorf("from %v, want %v", c.Source, want)
	}
	whole := c.AppendTo(nil)
	if len(whole) != Overhead+len(c.Payload) {
		t.Errorf("%d bytes, want %d", len(whole), Overhead+len(c.Payload))
	}
	read, err := Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Verify(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(c, read, cmp.AllowUnexported(Chunk{})); diff != "" {
		t.Errorf("read otherwise than written:\n%s", diff)
	}
	for i := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			forged, err := Parse(b)
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
	for _, x := range []struct {
		until time.Duration
		holds bool
	}{{-MaxSkew, true}, {-MaxSkew - time.Millisecond, false}, {0, true}, {MaxKept + MaxSkew, true}, {MaxKept + MaxSkew + time.Millisecond, false}} {
		c := signed()
		c.Until = now.Add(x.until)
		if err := c.CheckValid(now); (err == nil) != x.holds || err != nil && !errors.Is(err, ErrExpired) {
			t.Errorf("until %v from now: %v", x.until, err)
		}
	}
}

func TestMay(t *testing.T) {
	for _, x := range []struct {
		until time.Duration
		may   bool
	}{{0, false}, {time.Millisecond, true}, {MaxKept + MaxSkew, true}, {MaxKept + MaxSkew + time.Millisecond, false}} {
		c := signed()
		c.Until = now.Add(x.until)
		if err := c.CheckKeep(now); (err == nil) != x.may || err != nil && !errors.Is(err, ErrExpired) {
			t.Errorf("until %v from now: %v", x.until, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	c := signed()
	c.Number = 0
	late := signed().AppendTo(nil)
	late[Overhead-8] = 0xff
	for what, b := range map[string][]byte{"nothing": nil, "one byte less": signed().AppendTo(nil)[:Overhead-1], "number 0": c.AppendTo(nil), "too long": append(signed().AppendTo(nil), make([]byte, MaxPayload)...), "a time beyond all": late} {
		if _, err := Parse(b); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(signed().AppendTo(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err != nil {
			return
		}
		if again := c.AppendTo(nil); !bytes.Equal(again, b) {
			t.Errorf("%x was read, %x written", b, again)
		}
		_, _ = c.Verify(), c.CheckValid(now)
	})
}

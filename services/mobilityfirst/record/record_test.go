package record

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
)

var (
	now   = time.Now()
	home  = gnrswire.AddrPortOf(netip.MustParseAddrPort("192.0.2.1:5000"))
	owner = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	thief = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
)

func sign(t testing.TB, key ed25519.PrivateKey, number uint64, until time.Time, addresses ...gnrswire.Address) *Record {
	t.Helper()
	r, err := Sign(key, number, until, addresses...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Whatever is changed of a record, its owner has not signed.
func TestForgery(t *testing.T) {
	r := sign(t, owner, 7, now.Add(time.Hour), home)
	if err := r.Verify(now); err != nil {
		t.Fatal(err)
	}
	if want := NameOf(owner.Public().(ed25519.PublicKey)); r.GUID() != want {
		t.Errorf("of %v, want %v", r.GUID(), want)
	}
	whole := r.AppendTo(nil)
	for i := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			forged, err := Parse(b)
			if err == nil {
				err = forged.Verify(now)
			}
			if err == nil {
				t.Errorf("bit %d of byte %d can be changed", bit, i)
			}
		}
	}
	stolen := sign(t, thief, 8, now.Add(time.Hour), home)
	stolen.Key = r.Key
	if err := stolen.Verify(now); !errors.Is(err, ErrSignature) {
		t.Errorf("signed by somebody else: %v", err)
	}
}

func TestLimits(t *testing.T) {
	many := make([]gnrswire.Address, MaxAddresses+1)
	for name, x := range map[string]struct {
		r    *Record
		want error
	}{
		"over":     {sign(t, owner, 1, now.Add(-time.Second)), ErrExpired},
		"too long": {signUntil(now.Add(MaxValidity + MaxSkew + time.Second).Unix()), ErrExpired},
		"for ever": {signUntil(math.MaxInt64), ErrExpired},
		"never":    {signUntil(math.MinInt64), ErrExpired},
		"ahead":    {signUntil(now.Add(MaxValidity + MaxSkew).Unix()), nil},
		"last":     {sign(t, owner, 1, now), nil},
		"longest":  {sign(t, owner, 1, now.Add(MaxValidity), many[1:]...), nil},
		"many":     {&Record{Until: now.Unix(), Addresses: many}, ErrLimits},
		"long":     {&Record{Until: now.Unix(), Addresses: []gnrswire.Address{{Value: make([]byte, MaxAddress+1)}}}, ErrLimits},
	} {
		if err := x.r.Verify(now); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	if _, err := Sign(owner, 1, now, many...); !errors.Is(err, ErrLimits) {
		t.Errorf("%v", err)
	}
	if _, err := Sign(owner, 1, time.Now().Add(MaxValidity+time.Second)); !errors.Is(err, ErrExpired) {
		t.Errorf("%v", err)
	}
}

// signUntil signs what Sign does not.
func signUntil(until int64) *Record {
	r := &Record{Key: [ed25519.PublicKeySize]byte(owner.Public().(ed25519.PublicKey)), Until: until}
	r.Signature = [ed25519.SignatureSize]byte(ed25519.Sign(owner, r.signed()))
	return r
}

var anyRecord = rapid.Custom(func(t *rapid.T) *Record {
	address := rapid.Custom(func(t *rapid.T) gnrswire.Address {
		return gnrswire.Address{Kind: gnrswire.AddressKind(rapid.Uint16().Draw(t, "kind")), Value: rapid.SliceOfN(rapid.Byte(), 0, MaxAddress).Draw(t, "value")}
	})
	seed := rapid.SliceOfN(rapid.Byte(), ed25519.SeedSize, ed25519.SeedSize).Draw(t, "seed")
	until := now.Add(time.Duration(rapid.Int64Range(0, int64(MaxValidity)).Draw(t, "until")))
	r, err := Sign(ed25519.NewKeyFromSeed(seed), rapid.Uint64().Draw(t, "number"), until, rapid.SliceOfN(address, 0, MaxAddresses).Draw(t, "addresses")...)
	if err != nil {
		t.Fatal(err)
	}
	return r
})

// A record comes out of a store and out of messages as it went in.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRecord.Draw(t, "record")
		again, err := Parse(r.AppendTo(nil))
		if diff := cmp.Diff(r, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
		m := &gnrswire.Message{Kind: gnrswire.Update, Answer: rapid.Bool().Draw(t, "answer"), Options: []gnrswire.Option{{Kind: gnrswire.Recursive}}}
		r.Into(m)
		b, err := m.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		if m, err = gnrswire.Parse(b); err != nil {
			t.Fatal(err)
		}
		again, is, err := FromMessage(m, r.GUID())
		if diff := cmp.Diff(r, again, cmpopts.EquateEmpty()); !is || err != nil || diff != "" {
			t.Fatalf("%v %v\n%s", is, err, diff)
		}
		if err := again.Verify(now); err != nil {
			t.Fatal(err)
		}
		if _, _, err := FromMessage(m, frame.GUID{}); !errors.Is(err, ErrSignature) {
			t.Fatalf("of another name: %v", err)
		}
	})
}

// A message without a record has none; one with a part of one, or with one twice, is wrong.
func TestPartsOfRecords(t *testing.T) {
	r := sign(t, owner, 7, now, home)
	whole := &gnrswire.Message{}
	r.Into(whole)
	if _, is, err := FromMessage(&gnrswire.Message{Options: []gnrswire.Option{{Kind: gnrswire.Expiry}}}, r.GUID()); is || err != nil {
		t.Errorf("none: %v %v", is, err)
	}
	for i := range whole.Options {
		less := &gnrswire.Message{Options: append(append([]gnrswire.Option(nil), whole.Options[:i]...), whole.Options[i+1:]...)}
		twice := &gnrswire.Message{Options: append(append([]gnrswire.Option(nil), whole.Options...), whole.Options[i])}
		short := &gnrswire.Message{Options: append([]gnrswire.Option(nil), whole.Options...)}
		short.Options[i].Value = short.Options[i].Value[1:]
		for name, m := range map[string]*gnrswire.Message{"less": less, "twice": twice, "short": short} {
			if _, is, err := FromMessage(m, r.GUID()); !is || !errors.Is(err, ErrLayout) {
				t.Errorf("option %d, %s: %v %v", i, name, is, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sign(f, owner, 7, now, home, home).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err == nil && !bytes.Equal(r.AppendTo(nil), b) {
			t.Errorf("%x is written as %x", b, r.AppendTo(nil))
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	r := sign(b, owner, 7, now, home)
	for b.Loop() {
		if err := r.Verify(now); err != nil {
			b.Fatal(err)
		}
	}
}

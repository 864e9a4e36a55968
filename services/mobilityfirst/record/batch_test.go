package record

import (
	"crypto/ed25519"
	"errors"
	"slices"
	"testing"
	"time"
)

// Records that are verified together come out as each by itself, whichever of them is wrong.
func TestVerifyTogether(t *testing.T) {
	now := time.Now()
	sign := func(n int) *Record {
		seed := make([]byte, ed25519.SeedSize)
		seed[0] = byte(n)
		r, err := Sign(ed25519.NewKeyFromSeed(seed), uint64(n), now.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	forge := map[string]func(*Record){
		"right":              func(*Record) {},
		"signature":          func(r *Record) { r.Signature[5]++ },
		"number":             func(r *Record) { r.Number++ },
		"another's":          func(r *Record) { r.Key = sign(99).Key },
		"a key that is none": func(r *Record) { r.Key = [32]byte{2} },
		"over":               func(r *Record) { r.Until = now.Unix() - 1 },
		"too long":           func(r *Record) { r.Until = now.Add(48 * time.Hour).Unix() },
	}
	for name, change := range forge {
		for _, many := range []int{1, 2, 3, 40} {
			for at := range min(many, 3) {
				var all []*Record
				for i := range many {
					all = append(all, sign(i))
				}
				change(all[at])
				for i, err := range VerifyBatch(all, now) {
					if want := all[i].Verify(now); (err == nil) != (want == nil) || want != nil && err.Error() != want.Error() {
						t.Errorf("%s, %d of %d, record %d: %v, want %v", name, at, many, i, err, want)
					}
				}
			}
		}
	}
	if errs := VerifyBatch(nil, now); len(errs) != 0 {
		t.Errorf("none: %v", errs)
	}
	twice := []*Record{sign(1), sign(1)}
	if errs := VerifyBatch(twice, now); slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		t.Errorf("the same twice: %v", errors.Join(errs...))
	}
}

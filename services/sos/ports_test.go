package sos

import (
	"testing"

	"pgregory.net/rapid"
)

func TestBlocksCoverExactlyTheRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint16Range(1, 65535).Draw(t, "a"), rapid.Uint16Range(1, 65535).Draw(t, "b")
		r := PortRange{min(a, b), max(a, b)}
		blocks := r.blocks()
		if len(blocks) > 30 {
			t.Errorf("%v: %d blocks", r, len(blocks))
		}
		for p := range 65536 {
			n := 0
			for _, k := range blocks {
				if uint16(p)&k.mask == k.value {
					n++
				}
			}
			want := 0
			if r.Contains(uint16(p)) {
				want = 1
			}
			if n != want {
				t.Fatalf("%v: port %d is covered %d times, want %d", r, p, n, want)
			}
		}
	})
}

func TestParsePortRange(t *testing.T) {
	for in, want := range map[string]PortRange{"443": {443, 443}, "8000-8099": {8000, 8099}, "1-65535": {1, 65535}} {
		got, err := ParsePortRange(in)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
		if got.String() != in {
			t.Errorf("%q prints as %q", in, got)
		}
	}
	for _, in := range []string{"", "0", "65536", "http", "9-8", "1-", "-5", "1-2-3", "80,81"} {
		if got, err := ParsePortRange(in); err == nil {
			t.Errorf("%q was read as %v", in, got)
		}
	}
}

func FuzzParsePortRange(f *testing.F) {
	for _, s := range []string{"443", "8000-8099", "9-8", "-", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParsePortRange(s)
		if err != nil {
			return
		}
		again, err := ParsePortRange(r.String())
		if err != nil || again != r {
			t.Errorf("%q: %v does not survive printing: %v, %v", s, r, again, err)
		}
	})
}

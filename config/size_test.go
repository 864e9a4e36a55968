package config

import "testing"

// TestSizes checks that sizes are parsed as in internal/units, and that a plain number is in bytes.
func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"1500": 1500, "0": 0, "256KiB": 256 << 10, "1.5MB": 1_500_000, "4 MiB": 4 << 20, "1514B": 1514, "400MB": 4e8,
	} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%q: %d %v, want %d", text, s, err, want)
		}
		var back Size
		if err := back.UnmarshalText([]byte(s.String())); err != nil || back != s {
			t.Errorf("%q is written as %q, which reads as %d %v", text, s, back, err)
		}
	}
	for size, want := range map[Size]string{0: "0", 1500: "1500", 256 << 10: "256KiB", 1_500_000: "1.5MB", 4e8: "400MB", 100e9: "100GB", 3 << 19: "1.5MiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d is written as %q, want %q", int64(size), got, want)
		}
	}
	for _, text := range []string{"", "-1", "1.5", "1.5B", "4mib", "1e3", "MiB", "99999999999GiB"} {
		s := Size(7)
		if err := s.UnmarshalText([]byte(text)); err == nil || s != 7 {
			t.Errorf("%q is read as %d", text, s)
		}
	}
}

package units_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/internal/units"
)

func TestUnitsRead(t *testing.T) {
	rates := map[string]float64{
		"300Mbit": 300e6, "1Gbit": 1e9, "1.5Gbit/s": 1.5e9, "9.6kbit": 9600, "2400bit": 2400, "1 Gbit": 1e9,
	}
	for s, want := range rates {
		if got, err := units.ParseRate(s); err != nil || got != want {
			t.Errorf("rate %q: %v %v, want %v", s, got, err, want)
		}
	}
	sizes := map[string]int64{"64KiB": 65536, "5MB": 5e6, "1.5kB": 1500, "1514B": 1514, "1GiB": 1 << 30}
	for s, want := range sizes {
		if got, err := units.ParseSize(s); err != nil || got != want {
			t.Errorf("size %q: %v %v, want %v", s, got, err, want)
		}
	}
	times := map[string]time.Duration{"25ms": 25e6, "1.5s": 1.5e9, "30us": 30e3, "0ms": 0}
	for s, want := range times {
		if got, err := units.ParseTime(s); err != nil || got != want {
			t.Errorf("time %q: %v %v, want %v", s, got, err, want)
		}
	}
	shares := map[string]float64{"0.01%": 0.0001, "100%": 1, "0%": 0, "0.05%": 0.0005, "50 %": 0.5}
	for s, want := range shares {
		if got, err := units.ParseShare(s); err != nil || got != want {
			t.Errorf("share %q: %v %v, want %v", s, got, err, want)
		}
	}
}

func TestUnitsRefused(t *testing.T) {
	parsers := map[string]func(string) error{
		"rate":  func(s string) error { _, err := units.ParseRate(s); return err },
		"size":  func(s string) error { _, err := units.ParseSize(s); return err },
		"time":  func(s string) error { _, err := units.ParseTime(s); return err },
		"share": func(s string) error { _, err := units.ParseShare(s); return err },
	}
	refused := map[string][]string{
		"rate":  {"", "100", "Mbit", "-1Mbit", "1e3Mbit", "1MBit", "NaNbit", "Infbit", "0x1bit", "1..2bit", "1Mbps"},
		"size":  {"", "100", "kB", "1.5B", "-1B", "1kb", "99999999999999GiB"},
		"time":  {"", "25", "0", "-1ms", "ms", "25 ms", "1d"},
		"share": {"", "0.01", "%", "-1%", "101%", "NaN%", "1e-3%"},
	}
	for kind, texts := range refused {
		for _, s := range texts {
			if parsers[kind](s) == nil {
				t.Errorf("%s %q was accepted", kind, s)
			}
		}
	}
}

func TestUnitsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := float64(rapid.Int64Range(1000, 400e9).Draw(t, "rate"))
		if back, err := units.ParseRate(units.FormatRate(rate)); err != nil || back != rate {
			t.Fatalf("rate %v became %q, %v %v", rate, units.FormatRate(rate), back, err)
		}
		size := rapid.Int64Range(1, 1<<40).Draw(t, "size")
		if back, err := units.ParseSize(units.FormatSize(size)); err != nil || back != size {
			t.Fatalf("size %v became %q, %v %v", size, units.FormatSize(size), back, err)
		}
		percent := rapid.Float64Range(0, 100).Draw(t, "percent")
		share := percent / 100
		if back, err := units.ParseShare(units.FormatShare(share)); err != nil || back-share > 1e-15 || share-back > 1e-15 {
			t.Fatalf("share %v became %q, %v %v", share, units.FormatShare(share), back, err)
		}
	})
}

func TestFormatsAreShort(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{units.FormatRate(300e6), "300Mbit"},
		{units.FormatRate(2.5e9), "2.5Gbit"},
		{units.FormatRate(1500), "1.5kbit"},
		{units.FormatSize(65536), "64KiB"},
		{units.FormatSize(5e6), "5MB"},
		{units.FormatSize(1514), "1514B"},
		{units.FormatSize(4e8), "400MB"},
		{units.FormatSize(72 << 20), "72MiB"},
		{units.FormatSize(3 << 19), "1.5MiB"},
		{units.FormatSize(1024000), "1000KiB"},
		{units.FormatSize(0), "0B"},
		{units.FormatSize(1<<60 + 1), "1152921504606846977B"},
		{units.FormatShare(0.0005), "0.05%"},
		{units.FormatShare(1), "100%"},
		{units.FormatAmount(5), "5 B"},
		{units.FormatAmount(123456), "123 kB"},
		{units.FormatAmount(25e9), "25 GB"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

package units_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/internal/units"
)

func TestRate(t *testing.T) {
	documented := regexp.MustCompile(units.Rate(0).Schema(nil).Pattern)
	for text, want := range map[string]units.Rate{
		"10Mbit": 10e6, "1.5Gbit/s": 15e8, "64 kbit": 64e3, "0bit": 0, "1Tbit": 1e12, "1.5bit": 1,
	} {
		var r units.Rate
		if err := r.UnmarshalText([]byte(text)); err != nil || r != want || !documented.MatchString(text) {
			t.Errorf("%s is %d, %v; want %d, and that %v says so", text, r, err, want, documented)
		}
	}
	for text, want := range map[string]string{
		`"10MB"`: "none of Tbit", `"-1Mbit"`: "not a plain number", `"10"`: "the unit is missing", `""`: "the unit is missing", `10`: "number",
		`"99999999Tbit"`: "too large", `"1e3Mbit"`: "not a plain number", `{}`: "object",
	} {
		r := units.Rate(7)
		if err := json.Unmarshal([]byte(text), &r); err == nil || !strings.Contains(err.Error(), want) || r != 7 {
			t.Errorf("%s: %v, and the rate is %d; want %q, and 7", text, err, r, want)
		}
	}
}

func TestRatesComeBack(t *testing.T) {
	documented := regexp.MustCompile(`^"` + strings.Trim(units.Rate(0).Schema(nil).Pattern, "^$") + `"$`)
	rapid.Check(t, func(t *rapid.T) {
		want := units.Rate(rapid.Int64Range(0, 1e15).Draw(t, "rate"))
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got units.Rate
		if err := json.Unmarshal(text, &got); err != nil || got != want || !documented.Match(text) {
			t.Fatalf("%d is written as %s and read as %d, %v", want, text, got, err)
		}
	})
}

package units

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// unit is a suffix with its factor. Tables of units begin with the largest.
type unit struct {
	suffix string
	factor float64
}

var (
	rateUnits        = []unit{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}
	binarySizeUnits  = []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
	decimalSizeUnits = []unit{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}
	sizeUnits        = slices.Concat(binarySizeUnits[:3], decimalSizeUnits)
)

// ParseRate parses a rate such as 300Mbit or 1.5Gbit/s, and returns it in bit/s.
func ParseRate(s string) (float64, error) {
	v, err := parseUnits(strings.TrimSuffix(s, "/s"), rateUnits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a rate such as 300Mbit or 1Gbit: %w", s, err)
	}
	return v, nil
}

// ParseSize parses a size such as 64KiB or 5MB, and returns it in bytes.
func ParseSize(s string) (int64, error) {
	v, err := parseUnits(s, sizeUnits)
	if err == nil && (v != math.Trunc(v) || v >= 1<<62) {
		err = errors.New("not a whole number of bytes")
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a size such as 64KiB or 5MB: %w", s, err)
	}
	return int64(v), nil
}

// ParseTime parses a time such as 25ms or 1.5s.
func ParseTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || s == "0" {
		return 0, fmt.Errorf("%q is not a time such as 25ms or 1.5s", s)
	}
	return d, nil
}

// ParseShare parses a percentage such as 0.05%, and returns a number from 0 to 1.
func ParseShare(s string) (float64, error) {
	number, ok := strings.CutSuffix(s, "%")
	if !ok {
		return 0, fmt.Errorf("%q is not a percentage such as 0.05%%: no percent sign", s)
	}
	v, err := parseNumber(number)
	if err == nil && v > 100 {
		err = errors.New("more than 100 %")
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a percentage such as 0.05%%: %w", s, err)
	}
	return v / 100, nil
}

func parseUnits(s string, units []unit) (float64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		v, err := parseNumber(number)
		if err != nil {
			return 0, err
		}
		if v *= u.factor; math.IsInf(v, 0) {
			return 0, errors.New("too large")
		}
		return v, nil
	}
	var names []string
	for _, u := range units {
		names = append(names, u.suffix)
	}
	return 0, fmt.Errorf("the unit is missing or none of %s", strings.Join(names, ", "))
}

// parseNumber parses a plain decimal number. It refuses signs, exponents, infinities and the like.
func parseNumber(s string) (float64, error) {
	s = strings.TrimRight(s, " ")
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		return 0, errors.New("not a plain number")
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, errors.New("not a plain number")
	}
	return v, nil
}

// formatUnits returns the text of a value in the largest unit in which it can be parsed to the same
// value.
func formatUnits(v float64, units []unit) string {
	for _, u := range units {
		s := strconv.FormatFloat(v/u.factor, 'f', -1, 64)
		if v >= u.factor && len(s) <= 7 {
			if back, err := parseUnits(s+u.suffix, units); err == nil && back == v {
				return s + u.suffix
			}
		}
	}
	return strconv.FormatFloat(v, 'f', -1, 64) + units[len(units)-1].suffix
}

// FormatRate returns the text of a rate in bit/s, which ParseRate parses to the same rate.
func FormatRate(bitsPerSecond float64) string { return formatUnits(bitsPerSecond, rateUnits) }

// FormatSize returns the text of a size in bytes, which ParseSize parses to the same size. It uses
// the units, bytes or powers of 1024 or of 1000, in which the text is shortest.
func FormatSize(bytes int64) string {
	text := strconv.FormatInt(bytes, 10) + "B"
	for _, units := range [][]unit{binarySizeUnits, decimalSizeUnits} {
		if s := formatUnits(float64(bytes), units); len(s) < len(text) {
			text = s
		}
	}
	return text
}

// FormatAmount returns the text of a number of bytes, rounded for people.
func FormatAmount(bytes uint64) string {
	for _, u := range decimalSizeUnits {
		if v := float64(bytes); v >= 10*u.factor || u.factor == 1 {
			return strconv.FormatFloat(v/u.factor, 'f', 0, 64) + " " + u.suffix
		}
	}
	return "0 B"
}

// FormatShare returns a share from 0 to 1 as a percentage, which ParseShare parses to the same
// share.
func FormatShare(share float64) string {
	for digits := 1; digits < 18; digits++ {
		s := strconv.FormatFloat(share*100, 'f', digits, 64)
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		if back, err := ParseShare(s + "%"); err == nil && back == share {
			return s + "%"
		}
	}
	return strconv.FormatFloat(share*100, 'f', -1, 64) + "%"
}

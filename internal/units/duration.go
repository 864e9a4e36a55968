package units

import (
	"fmt"
	"time"
)

// Duration is a time.Duration whose JSON form is a text such as "1m30s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("duration %q: want a number with a unit, such as 30s", b)
	}
	*d = Duration(v)
	return nil
}

// String returns the duration as time.Duration prints it.
func (d Duration) String() string { return time.Duration(d).String() }

package units

import (
	"fmt"

	"github.com/danielgtaylor/huma/v2"
)

// Rate is a rate that somebody asks for, in bit/s: written like 10Mbit in configuration
// files and in JSON.
type Rate int64

// UnmarshalText reads what ParseRate does. Fractions of a bit are left out.
func (r *Rate) UnmarshalText(b []byte) error {
	v, err := ParseRate(string(b))
	if err == nil && v >= 1<<62 {
		err = fmt.Errorf("%.40q is too large for a rate", b)
	}
	if err != nil {
		return err
	}
	*r = Rate(v)
	return nil
}

// String is the inverse of UnmarshalText.
func (r Rate) String() string { return FormatRate(float64(r)) }

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Schema implements huma.SchemaProvider.
func (Rate) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, Pattern: `^[0-9]{1,15}(\.[0-9]{1,15})? *[kMGT]?bit(/s)?$`, PatternDescription: "a rate such as 300Mbit or 1.5Gbit",
		Examples: []any{"10Mbit"},
	}
}

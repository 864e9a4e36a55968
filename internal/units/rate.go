package units

import (
	"fmt"

	"github.com/danielgtaylor/huma/v2"
)

// Rate is a requested rate in bit/s. Configuration files and JSON contain it as a text such as
// 10Mbit.
type Rate int64

// UnmarshalText accepts what ParseRate accepts. It rounds down to whole bits per second.
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

// String returns the rate as text, which UnmarshalText parses to the same rate.
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

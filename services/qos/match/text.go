package match

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/danielgtaylor/huma/v2"
)

// Text is a value of a description as it was written: a string, or a number without quotes.
type Text string

// UnmarshalJSON accepts a string or a number.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(t))
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var n json.Number
	if err := d.Decode(&n); err != nil || n == "" {
		return fmt.Errorf("%.40s: neither a string nor a number", b)
	}
	*t = Text(n)
	return nil
}

// UnmarshalText lets configuration files contain the value with or without quotes.
func (t *Text) UnmarshalText(b []byte) error {
	*t = Text(b)
	return nil
}

// MarshalText returns the value as it was written.
func (t Text) MarshalText() ([]byte, error) { return []byte(t), nil }

// Schema returns an API schema that accepts a string or a number.
func (Text) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeNumber}}}
}

package client

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Problem is an answer that is not a success (RFC 9457).
type Problem struct {
	Type   string  `json:"type,omitempty"`
	Title  string  `json:"title,omitempty"`
	Status int     `json:"status,omitempty"`
	Detail string  `json:"detail,omitempty"`
	Errors []Field `json:"errors,omitempty"`
	// RetryAfter is the time after which to ask again, if the controller names one.
	RetryAfter time.Duration `json:"-"`
}

// Field is one field that the controller refused.
type Field struct {
	Location string `json:"location,omitempty"`
	Message  string `json:"message,omitempty"`
	Value    any    `json:"value,omitempty"`
}

// Error returns a summary, followed by one line for each refused field.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d)", p.Title, p.Status)
	if p.Detail != "" {
		fmt.Fprintf(&b, ": %s", p.Detail)
	}
	for _, f := range p.Errors {
		if f.Message == p.Detail && f.Value == nil {
			continue
		}
		b.WriteString("\n  ")
		if f.Location != "" {
			b.WriteString(f.Location)
			if f.Value != nil {
				fmt.Fprintf(&b, " = %s", short(f.Value))
			}
			b.WriteString(": ")
		}
		b.WriteString(f.Message)
	}
	return b.String()
}

func short(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > 120 {
		return string(b[:117]) + "..."
	}
	return string(b)
}

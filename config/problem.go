package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Source is the file, "environment" or "flags".
	Source string `json:"source"`
	// Line is the line in the file, from 1; zero for other sources.
	Line int `json:"line,omitempty"`
	// Key is the setting, like "api.listen".
	Key string `json:"key,omitempty"`
	// Value is what was given, shortened; empty if something is missing.
	Value string `json:"value,omitempty"`
	// Wrong says what is wrong with it.
	Wrong string `json:"wrong"`
	// Want says what would be right.
	Want string `json:"want"`
}

// String is one line: where, what, what is wrong, what would be right.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Source)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Key != "" {
		b.WriteString(p.Key)
		if p.Value != "" {
			b.WriteString(": " + p.Value)
		}
		b.WriteString(": ")
	}
	fmt.Fprintf(&b, "%s: %s", p.Wrong, p.Want)
	return b.String()
}

// Problems is everything that is wrong with a configuration.
type Problems []Problem

// Error implements error, one problem a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// sorted orders problems as a reader of the file meets them.
func (p Problems) sorted() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Line, b.Line))
	})
	return p
}

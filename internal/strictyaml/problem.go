package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a file.
type Problem struct {
	// Source is the file, or what else the value comes from.
	Source string `json:"source"`
	// Line is the line in the file, from 1; zero for other sources.
	Line int `json:"line,omitempty"`
	// Key is where in the file it is, like "api.listen" or "links[2].rate".
	Key string `json:"key,omitempty"`
	// Value is what was given, shortened; empty if something is missing.
	Value string `json:"value,omitempty"`
	// Wrong says what is wrong with it.
	Wrong string `json:"wrong"`
	// Want says what would be right; empty if Wrong does.
	Want string `json:"want,omitempty"`
}

// String is one line: where, what, what is wrong, what would be right.
func (p Problem) String() string {
	where := p.Source
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d", p.Source, p.Line)
	}
	parts := []string{where}
	if p.Key != "" {
		parts = append(parts, p.Key)
		if p.Value != "" {
			parts = append(parts, p.Value)
		}
	}
	parts = append(parts, p.Wrong)
	if p.Want != "" {
		parts = append(parts, p.Want)
	}
	return strings.Join(parts, ": ")
}

// Problems is everything that is wrong.
type Problems []Problem

// Error implements error, one problem a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// Sort orders problems as a reader of the file meets them.
func (p Problems) Sort() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Line, b.Line))
	})
	return p
}

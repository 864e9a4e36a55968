package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem describes one problem of a file.
type Problem struct {
	// Source is the file, or another source from which the value comes.
	Source string `json:"source"`
	// Line is the line in the file, from 1; zero for other sources.
	Line int `json:"line,omitempty"`
	// Key is the full name of the key in the file, like "api.listen" or "links[2].rate".
	Key string `json:"key,omitempty"`
	// Value is the faulty value, shortened; it is empty if a value is missing.
	Value string `json:"value,omitempty"`
	// Wrong describes what is wrong with the value.
	Wrong string `json:"wrong"`
	// Want describes what would be right; it is empty if Wrong does that already.
	Want string `json:"want,omitempty"`
}

// String returns the problem on one line: where it is, the value, what is wrong, and what would be
// right.
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

// Problems lists all problems of a file.
type Problems []Problem

// Error returns the problems, one on each line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// Sort sorts the problems by source and line, and returns them.
func (p Problems) Sort() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Line, b.Line))
	})
	return p
}

package check

import (
	"bytes"
	"regexp"
)

var (
	leftUndone  = regexp.MustCompile(`\b(` + "TO" + `DO|` + "FIX" + `ME|` + "XX" + `X|` + "HA" + `CK)\b`)
	machinePath = regexp.MustCompile(`(^|[^A-Za-z0-9_.])/(home/[a-z]|root/|work/)`)
)

// CheckMarks finds marks of unfinished work, and paths that exist on one person's machine only.
func CheckMarks(t *Tree) []Problem {
	var problems []Problem
	for _, f := range t.Files {
		number := 0
		for line := range bytes.Lines(f.Text) {
			number++
			at := func(text string) {
				problems = append(problems, Problem{Path: f.Path, Line: number, Text: text})
			}
			if leftUndone.Match(line) {
				at("note of unfinished work; do it, or open an issue")
			}
			if machinePath.Match(line) {
				at("path of one machine")
			}
		}
	}
	return problems
}

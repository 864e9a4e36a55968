package check

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	skipsList      = ".ci/skips"
	unreliableList = ".ci/unreliable"
	// mostUnreliable is how many tests CI may leave out at most.
	mostUnreliable = 10
)

// listed is a line of a list of tests.
type listed struct {
	line         int
	name, reason string
}

// readList reads a file of lines "FOLDER.TEST REASON". A file that does not exist is empty.
func readList(path string) ([]listed, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read a list of tests: %w", err)
	}
	var lines []listed
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		name, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" && !strings.HasPrefix(name, "#") {
			lines = append(lines, listed{line: number, name: name, reason: strings.TrimSpace(reason)})
		}
	}
	return lines, nil
}

var dated = regexp.MustCompile(`^20\d\d-\d\d-\d\d `)

// CheckLists finds lines of the lists of tests that name no test or give no reason, lines of
// unreliableList without a date, and more lines there than mostUnreliable.
func CheckLists(root string, t *Tree) ([]Problem, error) {
	tests := testsOf(t)
	var problems []Problem
	for _, name := range []string{skipsList, unreliableList, timingList} {
		lines, err := readList(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		for i, l := range lines {
			at := func(text string) { problems = append(problems, Problem{Path: name, Line: l.line, Text: text}) }
			top, _, _ := strings.Cut(l.name[max(strings.LastIndex(l.name, "."), 0):], "/")
			if name != timingList && !tests[l.name[:max(strings.LastIndex(l.name, "."), 0)]+top] {
				at("there is no test " + l.name)
			}
			if l.reason == "" {
				at("no reason for " + l.name)
			}
			if name == unreliableList && !dated.MatchString(l.reason) {
				at("no date for " + l.name)
			}
			if name == unreliableList && i == mostUnreliable {
				at(fmt.Sprintf("more than %d tests that CI leaves out: mend one", mostUnreliable))
			}
		}
	}
	return problems, nil
}

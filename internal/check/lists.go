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
	// mostUnreliable is the largest number of tests that CI may leave out.
	mostUnreliable = 10
)

// listed is one line of a file that lists tests.
type listed struct {
	line         int
	name, reason string
}

// readList reads a file of lines "FOLDER.TEST REASON". It returns no lines if the file does not
// exist.
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

// CheckLists finds faulty lines in the files that list tests: lines that name no existing test or
// give no reason, and lines of unreliableList without a date. It also reports if unreliableList has
// more than mostUnreliable lines.
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

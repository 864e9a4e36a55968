package check

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CheckLists finds lines of .ci/skips and .ci/quarantine that name no test, or no reason.
func CheckLists(root string, t *Tree) ([]Problem, error) {
	tests := testsOf(t)
	var problems []Problem
	for _, name := range []string{".ci/skips", ".ci/quarantine"} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("check lists of tests: %w", err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			test, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
			if test == "" || strings.HasPrefix(test, "#") {
				continue
			}
			at := func(text string) { problems = append(problems, Problem{Path: name, Line: number, Text: text}) }
			dot := max(strings.LastIndex(test, ".Test"), 0)
			top, _, _ := strings.Cut(test[dot:], "/")
			if !tests[test[:dot]+top] {
				at("there is no test " + test)
			}
			if strings.TrimSpace(reason) == "" {
				at("no reason for " + test)
			}
		}
	}
	return problems, nil
}

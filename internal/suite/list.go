package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// list holds tests, by package folder and name as in lab.TestDelay, with the reason why each
// is on it.
type list map[string]string

// readList reads a file of lines "FOLDER.TEST REASON". One that is not there is empty.
func readList(name string) (list, error) {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l := list{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		test, reason, _ := strings.Cut(line, " ")
		if reason = strings.TrimSpace(reason); reason == "" || !strings.Contains(test, ".Test") {
			return nil, fmt.Errorf("%s:%d: %q: want FOLDER.TEST and the reason", name, number, line)
		}
		l[test] = reason
	}
	return l, nil
}

// reason is why a test is on the list, itself or with what it is a part of.
func (l list) reason(test string) (why string, listed bool) {
	for {
		if why, listed = l[test]; listed {
			return why, true
		}
		i := strings.LastIndex(test, "/")
		if i < strings.LastIndex(test, ".Test") || i < 0 {
			return "", false
		}
		test = test[:i]
	}
}

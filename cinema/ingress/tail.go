package ingress

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// What is kept of what a child says: the last lines, each so long.
const (
	keepLines = 3
	keepLine  = 300
)

// tail keeps the last lines that are written to it. It is safe for concurrent use.
type tail struct {
	mu    sync.Mutex
	lines []string
	part  []byte // of a line that has not ended
}

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		t.part = append(t.part, line[:min(len(line), keepLine-min(len(t.part), keepLine))]...)
		if ended {
			t.end()
		}
		b = rest
	}
	return n, nil
}

// end keeps the line that has ended.
func (t *tail) end() {
	if line := clean(t.part); line != "" {
		t.lines = append(t.lines, line)
	}
	if extra := len(t.lines) - keepLines; extra > 0 {
		t.lines = slices.Delete(t.lines, 0, extra)
	}
	t.part = t.part[:0]
}

// String is the lines, with "; " between them, and without the accounts of URLs.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if line := clean(t.part); line != "" {
		lines = append(slices.Clone(lines), line)
	}
	return account.ReplaceAllString(strings.Join(lines, "; "), "://***@")
}

// account is that of a URL, which may have a password.
var account = regexp.MustCompile(`://[^/@\s]*@`)

// clean makes text of what a program has written, which may be anything.
func clean(b []byte) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), "")))
}

package ingress

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
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
	if line := t.last(); line != "" {
		t.lines = append(t.lines, line)
	}
	if extra := len(t.lines) - keepLines; extra > 0 {
		t.lines = slices.Delete(t.lines, 0, extra)
	}
	t.part = t.part[:0]
}

// last is the line that comes in, without the secrets of sources. What a cut has left of an
// address is none: it may be an account without the sign of one.
func (t *tail) last() string {
	line := clean(t.part)
	if len(t.part) == keepLine {
		line = cutAddress.ReplaceAllString(line, "")
	}
	line = gatewayapi.ShownText(line)
	return strings.ToValidUTF8(line[:min(len(line), keepLine)], "")
}

// String is the lines, with "; " between them.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if line := t.last(); line != "" {
		lines = append(slices.Clone(lines), line)
	}
	return strings.Join(lines, "; ")
}

// cutAddress is a URL at the end of a line.
var cutAddress = regexp.MustCompile(`\S*://\S*$`)

// clean makes text of what a program has written, which may be anything.
func clean(b []byte) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), "")))
}

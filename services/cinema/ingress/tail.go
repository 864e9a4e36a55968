package ingress

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// Bounds of the part of a process's output that is kept: the number of lines, and the length of each in
// bytes.
const (
	keepLines = 3
	keepLine  = 300
	// readLine is the length up to which a line is read and searched for secrets before it is
	// shortened to keepLine. So no part of a secret is left at the end of the shortened line.
	readLine = keepLine + maxSource
)

// tail keeps the last lines written to it, without the secrets of a source. It is safe for
// concurrent use.
type tail struct {
	source gatewayapi.SourceAddress

	mu    sync.Mutex
	lines []string
	part  []byte // incomplete line
}

// Write implements io.Writer. It never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		t.part = append(t.part, line[:min(len(line), readLine-min(len(t.part), readLine))]...)
		if ended {
			t.end()
		}
		b = rest
	}
	return n, nil
}

// end adds the line, which is complete now, to the lines that are kept, and drops the oldest one if
// there are too many.
func (t *tail) end() {
	if line := t.last(); line != "" {
		t.lines = append(t.lines, line)
	}
	if extra := len(t.lines) - keepLines; extra > 0 {
		t.lines = slices.Delete(t.lines, 0, extra)
	}
	t.part = t.part[:0]
}

// last returns the incomplete line without the secrets of sources. From a line that was cut off it
// omits an address at the end, because that may contain an account which is not recognised without the
// rest.
func (t *tail) last() string {
	line := clean(t.part)
	if len(t.part) == readLine {
		line = cutAddress.ReplaceAllString(line, "")
	}
	line = t.source.RedactText(line)
	return strings.ToValidUTF8(line[:min(len(line), keepLine)], "")
}

// String returns the lines, separated by "; ".
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if line := t.last(); line != "" {
		lines = append(slices.Clone(lines), line)
	}
	return strings.Join(lines, "; ")
}

// cutAddress matches a URL at the end of a line.
var cutAddress = regexp.MustCompile(`\S*://\S*$`)

// clean converts a program's output, which may be any bytes, to text without control characters.
func clean(b []byte) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), "")))
}

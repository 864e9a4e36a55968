package lograte_test

import (
	"errors"
	"log"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
)

func logger() (*slog.Logger, *strings.Builder) {
	var out strings.Builder
	return slog.New(slog.NewTextHandler(&out, nil)), &out
}

func TestLinesAreBoundedAndCounted(t *testing.T) {
	var l lograte.Limit
	at := time.Now()
	written := 0
	for range 1000 {
		if _, turn := l.Turn(at); turn {
			written++
		}
	}
	if written != 10 {
		t.Errorf("%d lines at once, want 10", written)
	}
	skipped, turn := l.Turn(at.Add(time.Second))
	if !turn || skipped != 990 {
		t.Errorf("a second later %v, left out %d", turn, skipped)
	}
}

func TestAttributesAreShortened(t *testing.T) {
	out, text := logger()
	var l lograte.Limit
	long := strings.Repeat("é", 1<<20)
	l.Warn(out, "said", "error", errors.New(long), "text", long, "number", 7)
	if n := text.Len(); n > 2000 || !strings.Contains(text.String(), "2097152 bytes") || !strings.Contains(text.String(), "number=7") {
		t.Errorf("%d bytes were written: %.400s", n, text)
	}
}

func TestWriterOfOthers(t *testing.T) {
	out, text := logger()
	var l lograte.Limit
	other := log.New(l.Writer(out, slog.LevelWarn, "server"), "", 0)
	for range 100 {
		other.Print("TLS handshake error")
	}
	if n := strings.Count(text.String(), "TLS handshake error"); n == 0 || n > 15 {
		t.Errorf("%d lines", n)
	}
}

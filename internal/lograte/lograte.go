// Package lograte bounds the number of log lines that other programs can cause.
package lograte

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"
)

// Limit bounds the log lines of one kind: it allows a burst, and then one line a second. The next
// line that is written reports how many were left out before it. The zero value is ready for use.
type Limit struct {
	// Burst is the number of lines that may be written at once; zero means ten.
	Burst int

	mu      sync.Mutex
	limiter *rate.Limiter
	skipped int
}

const (
	burst = 10
	// longest is the longest text of an attribute that is written, in bytes, because other programs
	// may send long texts.
	longest = 256
)

// Warn writes a line at level warn if the limit allows it.
func (l *Limit) Warn(log *slog.Logger, msg string, args ...any) {
	l.write(log, slog.LevelWarn, msg, args)
}

// Info writes a line at level info if the limit allows it.
func (l *Limit) Info(log *slog.Logger, msg string, args ...any) {
	l.write(log, slog.LevelInfo, msg, args)
}

func (l *Limit) write(log *slog.Logger, level slog.Level, msg string, args []any) {
	skipped, turn := l.Turn(time.Now())
	if !turn {
		return
	}
	short := make([]any, 0, len(args)+2)
	for _, a := range args {
		short = append(short, Shorten(a))
	}
	if skipped > 0 {
		short = append(short, "left_out", skipped)
	}
	log.Log(context.Background(), level, msg, short...)
}

// Turn reports whether another line may be written now, and if so, how many lines were left out
// since the last one.
func (l *Limit) Turn(now time.Time) (skipped int, turn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limiter == nil {
		l.limiter = rate.NewLimiter(1, cmp.Or(l.Burst, burst))
	}
	if !l.limiter.AllowN(now, 1) {
		l.skipped++
		return 0, false
	}
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}

// Skipped returns how many lines were left out since the last written one, and resets that number.
// It is for callers that report the number even if no further line follows.
func (l *Limit) Skipped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.skipped
	l.skipped = 0
	return n
}

// Shorten returns an attribute whose text is cut to longest bytes. Numbers and other values without
// a text stay as they are.
func Shorten(a any) any {
	var text string
	switch v := a.(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	case fmt.Stringer:
		text = fmt.Sprint(v) // works for a nil pointer as well
	case []byte:
		text = string(v)
	default:
		return a
	}
	if len(text) <= longest {
		return text
	}
	cut := longest
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:cut], len(text))
}

// Writer returns a writer for a log.Logger, such as that of an http.Server. Each line that is
// written to it becomes a log line that counts against this limit.
func (l *Limit) Writer(log *slog.Logger, level slog.Level, msg string) io.Writer {
	return writer(func(line string) { l.write(log, level, msg, []any{"reason", line}) })
}

type writer func(line string)

func (w writer) Write(b []byte) (int, error) {
	w(strings.TrimSpace(string(b)))
	return len(b), nil
}

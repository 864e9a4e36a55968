// Package lograte bounds the log lines that others can cause.
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

// Limit bounds the lines of one kind: a burst, then one each second. The next line that
// is written says how many were left out. The zero value is ready.
type Limit struct {
	// Burst is how many lines may come at once; zero means ten.
	Burst int

	mu      sync.Mutex
	limiter *rate.Limiter
	skipped int
}

const (
	burst = 10
	// longest is how much of an attribute is written: what others say may be long.
	longest = 256
)

// Warn writes a line at level warn, if it is its turn.
func (l *Limit) Warn(log *slog.Logger, msg string, args ...any) {
	l.write(log, slog.LevelWarn, msg, args)
}

// Info writes a line at level info, if it is its turn.
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

// Turn reports whether one more may be written, and how many were left out since the last.
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

// Skipped returns how many were left out since the last, and forgets them: for who tells
// of it when nothing more comes.
func (l *Limit) Skipped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.skipped
	l.skipped = 0
	return n
}

// Shorten cuts what is written of an attribute. Numbers and the like stay as they are.
func Shorten(a any) any {
	var text string
	switch v := a.(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	case fmt.Stringer:
		text = fmt.Sprint(v) // also of a nil pointer
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

// Writer is for a log.Logger of others, like that of an http.Server: each line that is
// written there becomes one of this limit.
func (l *Limit) Writer(log *slog.Logger, level slog.Level, msg string) io.Writer {
	return writer(func(line string) { l.write(log, level, msg, []any{"reason", line}) })
}

type writer func(line string)

func (w writer) Write(b []byte) (int, error) {
	w(strings.TrimSpace(string(b)))
	return len(b), nil
}

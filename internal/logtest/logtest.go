// Package logtest provides a log whose content tests can read.
package logtest

import (
	"log/slog"
	"strings"
	"sync"
)

// Log keeps all that is written to it. It may be read while others write to it. The zero value is
// ready for use.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Logger returns a logger that writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write implements io.Writer, for a handler of log/slog.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns all that has been written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

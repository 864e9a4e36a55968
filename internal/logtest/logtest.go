// Package logtest is a log for tests to look through.
package logtest

import (
	"log/slog"
	"strings"
	"sync"
)

// Log keeps what is written to it, and can be read meanwhile. The zero value is ready.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Logger writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write is for a handler of log/slog.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String is all that has been written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

package network

import (
	"log/slog"
	"sync"
	"time"
)

// logLimit bounds the log lines of one switch: a burst, then one each second,
// with the number of those left out.
type logLimit struct {
	mu      sync.Mutex
	tokens  int
	last    time.Time
	skipped int
}

const logBurst = 10

func (l *logLimit) warn(log *slog.Logger, msg string, args ...any) {
	l.mu.Lock()
	now := time.Now()
	if l.last.IsZero() {
		l.tokens = logBurst
		l.last = now
	}
	if n := int(now.Sub(l.last) / time.Second); n > 0 {
		l.tokens = min(l.tokens+n, logBurst)
		l.last = now
	}
	if l.tokens == 0 {
		l.skipped++
		l.mu.Unlock()
		return
	}
	l.tokens--
	if l.skipped > 0 {
		args = append(args, "left_out", l.skipped)
		l.skipped = 0
	}
	l.mu.Unlock()
	log.Warn(msg, args...)
}

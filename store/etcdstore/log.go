package etcdstore

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-net/sluice/internal/lograte"
)

// zapLogger forwards the client's log: its errors as warnings, and its warnings as debug
// messages, because the caller of a failed operation gets the error.
func zapLogger(l *slog.Logger) *zap.Logger {
	return zap.New(&slogCore{log: l.With("component", "etcd"), lines: &lograte.Limit{}})
}

// slogCore is a zapcore.Core that writes to slog.
type slogCore struct {
	log   *slog.Logger
	lines *lograte.Limit
}

func (c *slogCore) Enabled(l zapcore.Level) bool {
	return l == zapcore.ErrorLevel || l == zapcore.WarnLevel && c.log.Enabled(context.Background(), slogLevel(l))
}

func slogLevel(l zapcore.Level) slog.Level {
	if l >= zapcore.ErrorLevel {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{log: c.log.With(attrs(fields)...), lines: c.lines}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if _, turn := c.lines.Turn(e.Time); turn && c.log.Enabled(context.Background(), slogLevel(e.Level)) {
		c.log.Log(context.Background(), slogLevel(e.Level), e.Message, attrs(fields)...)
	}
	return nil
}

func (c *slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []any {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	out := make([]any, 0, 2*len(m.Fields))
	for k, v := range m.Fields {
		out = append(out, k, v)
	}
	return out
}

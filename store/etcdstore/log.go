package etcdstore

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-net/sluice/internal/lograte"
)

// zapLogger passes etcd's log on, one level quieter than etcd means it: its
// warnings are about clusters, and ours has one member. What it says when it cannot go on
// goes to fatal instead, and stuck hears that it could not allocate its log's next file.
// Either may be nil.
func zapLogger(l *slog.Logger, fatal zapcore.CheckWriteHook, stuck func()) *zap.Logger {
	c := &core{log: l.With("component", "etcd"), stuck: stuck, lines: &lograte.Limit{}}
	if fatal == nil {
		return zap.New(c)
	}
	return zap.New(c, zap.WithFatalHook(fatal), zap.WithPanicHook(fatal))
}

// freshStore is what etcd says at error level in the first moments of a new data
// folder, before its membership is in the backend. It tries again by itself.
const freshStore = "failed to update storage version"

// noNextLog is what etcd says when it could not allocate its log's next file. It will not
// try again, and end when it needs the file.
const noNextLog = "failed to preallocate space when creating a new WAL"

type core struct {
	log   *slog.Logger
	stuck func()
	lines *lograte.Limit
}

func (c *core) Enabled(l zapcore.Level) bool {
	return l == zapcore.ErrorLevel || l == zapcore.WarnLevel && c.log.Enabled(context.Background(), slogLevel(l))
}

func slogLevel(l zapcore.Level) slog.Level {
	if l >= zapcore.ErrorLevel {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{log: c.log.With(attrs(fields)...), stuck: c.stuck, lines: c.lines}
}

func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if e.Message == freshStore {
		return nil
	}
	if e.Message == noNextLog && c.stuck != nil {
		c.stuck()
	}
	if _, turn := c.lines.Turn(e.Time); turn && c.log.Enabled(context.Background(), slogLevel(e.Level)) {
		c.log.Log(context.Background(), slogLevel(e.Level), e.Message, attrs(fields)...)
	}
	return nil
}

func (c *core) Sync() error { return nil }

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

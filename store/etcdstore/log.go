package etcdstore

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger passes etcd's log on, one level quieter than etcd means it: its
// warnings are about clusters, and ours has one member.
func zapLogger(l *slog.Logger) *zap.Logger {
	return zap.New(&core{log: l.With("component", "etcd")})
}

// freshStore is what etcd says at error level in the first moments of a new data
// folder, before its membership is in the backend. It tries again by itself.
const freshStore = "failed to update storage version"

type core struct{ log *slog.Logger }

func (c *core) Enabled(l zapcore.Level) bool {
	return l >= zapcore.WarnLevel && c.log.Enabled(context.Background(), slogLevel(l))
}

func slogLevel(l zapcore.Level) slog.Level {
	if l >= zapcore.ErrorLevel {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{log: c.log.With(attrs(fields)...)}
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
	c.log.Log(context.Background(), slogLevel(e.Level), e.Message, attrs(fields)...)
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

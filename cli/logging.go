package cli

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/sluice-net/sluice/config"
)

// newLogger is the log of a program that goes on running.
func newLogger(w io.Writer, c config.Log) (*slog.Logger, error) {
	log, _, err := newLeveledLogger(w, c)
	return log, err
}

// newLeveledLogger is the same with the means to change its level.
func newLeveledLogger(w io.Writer, c config.Log) (*slog.Logger, *slog.LevelVar, error) {
	level := &slog.LevelVar{}
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, nil, fmt.Errorf("log.level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level, nil
	}
	return slog.New(slog.NewTextHandler(w, options)), level, nil
}

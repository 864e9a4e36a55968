package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
)

// hangups receives SIGHUPs. After catchHangups the signal no longer ends the process. One signal
// that arrives before serve is kept.
type hangups struct {
	signals chan os.Signal
	cancel  context.CancelFunc
	watcher sync.WaitGroup
}

func catchHangups() *hangups {
	h := &hangups{signals: make(chan os.Signal, 1), cancel: func() {}}
	signal.Notify(h.signals, syscall.SIGHUP)
	return h
}

// serve calls f after each SIGHUP, one at a time, until stop is called or ctx ends.
func (h *hangups) serve(ctx context.Context, f func(context.Context)) {
	ctx, h.cancel = context.WithCancel(ctx)
	h.watcher.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-h.signals:
				f(ctx)
			}
		}
	})
}

func (h *hangups) stop() {
	h.cancel()
	h.watcher.Wait()
	signal.Stop(h.signals)
}

// TellOfHangups logs after each SIGHUP that flags need a restart, until stop is called or ctx ends.
// A program that has only flags uses it.
func TellOfHangups(ctx context.Context, log *slog.Logger) (stop func()) {
	h := catchHangups()
	h.serve(ctx, func(context.Context) {
		log.Info("there is no configuration to read again: changed flags need a restart")
	})
	return h.stop
}

// Settings is a configuration of type T that can be read again while the program runs.
type Settings[T any] interface {
	Logging() config.Log
	// Adopt returns what is in force once next has been read.
	Adopt(next T) T
}

// Running is a daemon that has read its configuration.
type Running[T Settings[T]] struct {
	Log *slog.Logger
	// Config is the configuration in force; SIGHUP makes Reloads read it again.
	Config T

	hangups *hangups
	level   *slog.LevelVar
	load    func() (T, error)
}

// Daemon makes a command read a configuration and run until it is told to end. Once the
// configuration has been read, SIGHUP no longer ends the command.
func Daemon[T Settings[T]](app *App, cmd *cobra.Command, load func(config.Sources) (T, error), run func(context.Context, *Running[T]) error) *cobra.Command {
	var flags ConfigFlags
	flags.Register(cmd)
	cmd.Args = command.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		again := func() (T, error) {
			s := flags.Sources()
			s.Again = true
			return load(s)
		}
		cfg, err := load(flags.Sources())
		if err != nil {
			return err
		}
		log, level, err := NewLogger(app.Err, cfg.Logging())
		if err != nil {
			return err
		}
		r := &Running[T]{Log: log, Config: cfg, hangups: catchHangups(), level: level, load: again}
		defer r.hangups.stop()
		return run(cmd.Context(), r)
	}
	return cmd
}

// Reloads reads the configuration again after each SIGHUP. It sets the log level, and calls apply,
// if it is not nil, for the other settings that take effect without a restart. It logs which other
// settings have changed. A configuration that load or apply refuses changes nothing. (Certificates
// are reloaded independently.)
func (r *Running[T]) Reloads(ctx context.Context, apply func(context.Context, T) error) {
	r.hangups.serve(ctx, func(ctx context.Context) {
		next, err := r.load()
		if err != nil {
			r.refused(err)
			return
		}
		now := r.Config.Adopt(next)
		if apply != nil {
			err = apply(ctx, now)
		}
		if err != nil && !errors.Is(err, config.ErrPartly) {
			r.refused(err)
			return
		}
		if levelErr := r.level.UnmarshalText([]byte(now.Logging().Level)); levelErr != nil {
			err = errors.Join(err, levelErr)
		}
		if err != nil {
			r.Log.Error("the configuration was read again, and not all of it has taken effect", "error", err)
			return
		}
		r.Config = now
		r.Log.Info("the configuration was read again", "log_level", r.level.Level(), "changed_but_needs_a_restart", config.Changed(now, next))
	})
}

func (r *Running[T]) refused(err error) {
	r.Log.Error("the configuration was not read again, nothing has changed", "error", err)
}

// NewLogger returns the logger of a daemon, and the variable that sets its level.
func NewLogger(w io.Writer, c config.Log) (*slog.Logger, *slog.LevelVar, error) {
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

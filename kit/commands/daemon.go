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

// FlagDaemon returns the function RunE of a command that runs until it is told to end and has flags
// instead of a configuration. SIGHUP does not end the command; the log then says that changed flags
// need a restart.
func FlagDaemon(app *App, run func(cmd *cobra.Command, args []string, log *slog.Logger) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		log := slog.New(slog.NewTextHandler(app.Err, nil))
		h := catchHangups()
		defer h.stop()
		h.serve(cmd.Context(), func(context.Context) {
			log.Info("there is no configuration to read again: changed flags need a restart")
		})
		return run(cmd, args, log)
	}
}

// Settings is the configuration of a daemon: a pointer to a struct. Settings with the tag
// reload:"yes" can be changed while the daemon runs, as config.Adopt describes.
type Settings interface {
	config.Checked
	Logging() config.Log
}

// Running is a daemon that has read its configuration.
type Running[T Settings] struct {
	Log *slog.Logger
	// Config is the configuration in force; SIGHUP makes Reloads read it again.
	Config T

	hangups *hangups
	level   *slog.LevelVar
	load    func(again bool) (T, error)
}

// Daemon makes a command read a configuration, over the values of defaults, and run until it is told
// to end. Once the configuration has been read, SIGHUP no longer ends the command.
func Daemon[T Settings](app *App, cmd *cobra.Command, defaults func() T, run func(context.Context, *Running[T]) error) *cobra.Command {
	var flags ConfigFlags
	flags.Register(cmd)
	cmd.Args = command.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		load := func(again bool) (T, error) {
			s, c := flags.Sources(), defaults()
			s.Again = again
			return c, config.Load(s, c)
		}
		cfg, err := load(false)
		if err != nil {
			return err
		}
		log, level, err := NewLogger(app.Err, cfg.Logging())
		if err != nil {
			return err
		}
		r := &Running[T]{Log: log, Config: cfg, hangups: catchHangups(), level: level, load: load}
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
		next, err := r.load(true)
		if err != nil {
			r.refused(err)
			return
		}
		now := config.Adopt(r.Config, next)
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

package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/sluice-net/sluice/config"
)

// logReloaded is the setting that takes effect at once.
const logReloaded = "log.level"

// startLog makes the log of a program that goes on running, and has SIGHUP read the
// program's configuration again: the level of the log takes effect at once, and what else
// has changed is named, since it needs a restart. (Certificates are read again by
// themselves.) A configuration that is refused changes nothing. stop ends this.
func startLog[T any](ctx context.Context, w io.Writer, cfg *T, of func(*T) config.Log, load func() (*T, error)) (log *slog.Logger, stop func(), err error) {
	log, level, err := newLeveledLogger(w, of(cfg))
	if err != nil {
		return nil, nil, err
	}
	return log, onHangup(ctx, func() {
		next, err := load()
		if err == nil {
			err = level.UnmarshalText([]byte(of(next).Level))
		}
		if err != nil {
			log.Error("the configuration was not read again, nothing has changed", "error", err)
			return
		}
		log.Info("the configuration was read again", "log_level", level.Level(), "changed_but_needs_a_restart", config.Changed(cfg, next, logReloaded))
	}), nil
}

// onHangup calls f after each SIGHUP, which ends the process no more, until stop is called
// or ctx ends.
func onHangup(ctx context.Context, f func()) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				f()
			}
		}
	})
	return func() { cancel(); watcher.Wait(); signal.Stop(hangups) }
}

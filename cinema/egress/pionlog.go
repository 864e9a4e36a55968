package egress

import (
	"fmt"
	"log/slog"

	"github.com/pion/logging"

	"github.com/sluice-net/sluice/internal/lograte"
)

// logFactory has pion's lines be some of the gateway's: what viewers can cause is a warning, and
// bounded.
type logFactory struct {
	log     *slog.Logger
	strange lograte.Limit
}

// NewLogger implements logging.LoggerFactory.
func (f *logFactory) NewLogger(scope string) logging.LeveledLogger { return scoped{f, scope} }

type scoped struct {
	*logFactory
	scope string
}

func (s scoped) warn(text string) {
	s.strange.Warn(s.log, "media transport", "part", s.scope, "reason", text)
}

// Trace and the others implement logging.LeveledLogger.
func (s scoped) Trace(string) {}

// Tracef is left out.
func (s scoped) Tracef(string, ...any) {}

// Debug is left out.
func (s scoped) Debug(string) {}

// Debugf is left out.
func (s scoped) Debugf(string, ...any) {}

// Info is left out.
func (s scoped) Info(string) {}

// Infof is left out.
func (s scoped) Infof(string, ...any) {}

// Warn writes a line.
func (s scoped) Warn(text string) { s.warn(text) }

// Warnf writes a line.
func (s scoped) Warnf(format string, args ...any) { s.warn(fmt.Sprintf(format, args...)) }

// Error writes a line.
func (s scoped) Error(text string) { s.warn(text) }

// Errorf writes a line.
func (s scoped) Errorf(format string, args ...any) { s.warn(fmt.Sprintf(format, args...)) }

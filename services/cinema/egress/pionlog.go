package egress

import (
	"fmt"
	"log/slog"

	"github.com/pion/logging"

	"github.com/sluice-net/sluice/internal/lograte"
)

// logFactory passes warnings and errors of pion, the WebRTC library, to the gateway's log. They become
// warnings and are rate-limited, because viewers can cause them.
type logFactory struct {
	log         *slog.Logger
	warnLimiter lograte.Limit
}

// NewLogger implements logging.LoggerFactory.
func (f *logFactory) NewLogger(scope string) logging.LeveledLogger { return scoped{f, scope} }

type scoped struct {
	*logFactory
	scope string
}

func (s scoped) warn(text string) {
	s.warnLimiter.Warn(s.log, "media transport", "part", s.scope, "reason", text)
}

// Trace implements logging.LeveledLogger, as do the methods below. It discards the message.
func (s scoped) Trace(string) {}

// Tracef discards the message.
func (s scoped) Tracef(string, ...any) {}

// Debug discards the message.
func (s scoped) Debug(string) {}

// Debugf discards the message.
func (s scoped) Debugf(string, ...any) {}

// Info discards the message.
func (s scoped) Info(string) {}

// Infof discards the message.
func (s scoped) Infof(string, ...any) {}

// Warn logs the message.
func (s scoped) Warn(text string) { s.warn(text) }

// Warnf logs the message.
func (s scoped) Warnf(format string, args ...any) { s.warn(fmt.Sprintf(format, args...)) }

// Error logs the message.
func (s scoped) Error(text string) { s.warn(text) }

// Errorf logs the message.
func (s scoped) Errorf(format string, args ...any) { s.warn(fmt.Sprintf(format, args...)) }

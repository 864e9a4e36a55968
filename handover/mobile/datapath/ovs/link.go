package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// link keeps a session with the bridge: it connects again when the switch was
// restarted, and then brings the rules back.
type link struct {
	path     string
	log      *slog.Logger
	restore  func(context.Context, *session) error // brings the rules to a new session
	packetIn func(*session, *openflow.PacketIn)

	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	current *session
	changed chan struct{} // closed when current changes
}

func newLink(path string, log *slog.Logger, restore func(context.Context, *session) error, packetIn func(*session, *openflow.PacketIn)) *link {
	ctx, stop := context.WithCancel(context.Background())
	l := &link{
		path: path, log: log, restore: restore, packetIn: packetIn,
		stop: stop, done: make(chan struct{}), changed: make(chan struct{}),
	}
	go l.run(ctx)
	return l
}

// close ends the session. The rules stay.
func (l *link) close() {
	l.stop()
	<-l.done
}

func (l *link) run(ctx context.Context) {
	defer close(l.done)
	pause := firstRetry
	for ctx.Err() == nil {
		began := time.Now()
		err := l.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastRetry {
			pause = firstRetry
		}
		l.log.Debug("session with the switch", "error", err, "again in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastRetry)
	}
}

// once is one session from its beginning to its end.
func (l *link) once(ctx context.Context) error {
	s, err := connect(ctx, l.path, l.log, l.packetIn)
	if err != nil {
		return err
	}
	defer s.close()
	restoring, cancel := context.WithTimeout(ctx, greeting)
	err = l.restore(restoring, s)
	cancel()
	if err != nil {
		return fmt.Errorf("bringing the rules back: %w", err)
	}
	l.set(s)
	defer l.set(nil)
	select {
	case <-s.done:
		return errLost
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) set(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = s
	close(l.changed)
	l.changed = make(chan struct{})
}

// session waits for one.
func (l *link) session(ctx context.Context) (*session, error) {
	for {
		l.mu.Lock()
		s, changed := l.current, l.changed
		l.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-l.done:
			return nil, errors.New("the datapath is closed")
		case <-ctx.Done():
			return nil, fmt.Errorf("no session with the switch at %s: %w", l.path, ctx.Err())
		}
	}
}

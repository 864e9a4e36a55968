package redisnames

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// channel is the channel for notifications of changed names.
	channel = "sluice:names"
	// senderSize is the size in bytes of the sender in a notification; the name follows it.
	senderSize = 8
	// pingInterval is how long the subscription may be silent before the store sends a ping.
	pingInterval = time.Second
	// listenRetry is the pause after a failed subscription.
	listenRetry = 250 * time.Millisecond
)

// notification returns the notification that this store has changed a name.
func (s *Store) notification(name frame.GUID) []byte {
	return append([]byte(*s.sender.Load()), name[:]...)
}

// renewSender changes the sender of this store's notifications, so that its notifications in flight
// count as those of others. If the result of a write is not known, its notification may be the only
// sign that the write has succeeded.
func (s *Store) renewSender() {
	self := rand.Text()[:senderSize]
	s.sender.Store(&self)
}

// Changed registers f, which is called with names that others have changed in the cluster, or that
// this store has changed without learning the result. f must not block. A later call replaces f.
func (s *Store) Changed(f func(frame.GUID)) { s.changed.Store(&f) }

// Hears reports whether the store receives notifications. A change that was made while it did not
// is never reported.
func (s *Store) Hears() bool { return s.hears.Load() }

// listen receives notifications until ctx ends.
func (s *Store) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.subscription(ctx)
		s.hears.Store(false)
		if ctx.Err() == nil {
			s.warnLimit.Warn(s.Log, "cannot receive notifications of changed names from Redis: clients are not promised notifications meanwhile", "error", err)
		}
		_ = tasks.Sleep(ctx, listenRetry)
	}
}

// errSilent means that the subscription's connection does not answer.
var errSilent = errors.New("the connection does not answer")

// subscription receives notifications over one connection until it fails or ctx ends.
func (s *Store) subscription(ctx context.Context) error {
	subscribing, cancel := context.WithTimeout(ctx, writeTimeout+s.slack)
	defer cancel()
	sub := s.cluster.Subscribe(subscribing, channel)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	asked := false
	for {
		message, err := receive(ctx, sub, pingInterval)
		late := net.Error(nil)
		switch {
		case err != nil && errors.As(err, &late) && late.Timeout() && !asked:
			if err := sub.Ping(ctx); err != nil {
				return fmt.Errorf("subscription at Redis: %w", err)
			}
			asked = true
			continue
		case err != nil && asked:
			return fmt.Errorf("subscription at Redis: %w: %w", errSilent, err)
		case err != nil:
			return fmt.Errorf("subscription at Redis: %w", err)
		}
		asked = false
		switch message := message.(type) {
		case *redis.Subscription:
			s.hears.Store(true)
		case *redis.Message:
			s.handleNotification(message.Payload)
		}
	}
}

// errNotNotification means that the subscription has received something else than a notification.
var errNotNotification = errors.New("the message is not a notification")

// receive waits for a message up to a timeout. It recovers from panics of the library, which input
// that is not from Redis can cause.
func receive(ctx context.Context, sub *redis.PubSub, within time.Duration) (message any, err error) {
	defer func() {
		if what := recover(); what != nil {
			message, err = nil, fmt.Errorf("%v: %w", what, errNotNotification)
		}
	}()
	return sub.ReceiveTimeout(ctx, within)
}

// handleNotification handles a notification. It ignores malformed ones.
func (s *Store) handleNotification(news string) {
	f := s.changed.Load()
	if len(news) != senderSize+len(frame.GUID{}) || news[:senderSize] == *s.sender.Load() || f == nil {
		return
	}
	(*f)(frame.GUID([]byte(news[senderSize:])))
}

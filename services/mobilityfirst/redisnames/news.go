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
	// channel is where it is said that something new of a name is there.
	channel = "sluice:names"
	// selfSize is how long is what says who says it, in bytes; the name follows.
	selfSize = 8
	// heardEvery is how often something has to be heard of Redis: if not, it is asked whether it is there.
	heardEvery = time.Second
	// listenAgain is how long it is not listened after that has failed.
	listenAgain = 250 * time.Millisecond
)

// news says that this store has something new of a name.
func (s *Store) news(name frame.GUID) []byte { return append([]byte(*s.self.Load()), name[:]...) }

// rename has the news that are under way be others': of a write of which it is not known what has become, they may be all that
// is heard.
func (s *Store) rename() {
	self := rand.Text()[:selfSize]
	s.self.Store(&self)
}

// Changed has f called with names of which others have written something new to the cluster, or this store, if it has not been told
// what became of that. f must not block. There is one f at a time.
func (s *Store) Changed(f func(frame.GUID)) { s.changed.Store(&f) }

// Hears says whether it is told of what others write. What they have written while it was not is never told.
func (s *Store) Hears() bool { return s.hears.Load() }

// listen hears news until ctx ends.
func (s *Store) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.subscription(ctx)
		s.hears.Store(false)
		if ctx.Err() == nil {
			s.lines.Warn(s.Log, "what others write to Redis is not heard of: nobody is promised to be told of changes", "error", err)
		}
		_ = tasks.Sleep(ctx, listenAgain)
	}
}

// errDeaf is for a connection by which nothing is heard.
var errDeaf = errors.New("it does not answer")

// subscription hears news over one connection until that fails or ctx ends.
func (s *Store) subscription(ctx context.Context) error {
	subscribing, cancel := context.WithTimeout(ctx, writeWithin+s.slack)
	defer cancel()
	sub := s.cluster.Subscribe(subscribing, channel)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	asked := false
	for {
		message, err := receive(ctx, sub, heardEvery)
		late := net.Error(nil)
		switch {
		case err != nil && errors.As(err, &late) && late.Timeout() && !asked:
			if err := sub.Ping(ctx); err != nil {
				return fmt.Errorf("subscription at Redis: %w", err)
			}
			asked = true
			continue
		case err != nil && asked:
			return fmt.Errorf("subscription at Redis: %w: %w", errDeaf, err)
		case err != nil:
			return fmt.Errorf("subscription at Redis: %w", err)
		}
		asked = false
		switch message := message.(type) {
		case *redis.Subscription:
			s.hears.Store(true)
		case *redis.Message:
			s.heard(message.Payload)
		}
	}
}

// errNoNews is for what is sent to who wants to hear news, and is none.
var errNoNews = errors.New("it sends what is no news")

// receive waits for what is heard, for so long at most. The library panics at what no Redis sends.
func receive(ctx context.Context, sub *redis.PubSub, within time.Duration) (message any, err error) {
	defer func() {
		if what := recover(); what != nil {
			message, err = nil, fmt.Errorf("%v: %w", what, errNoNews)
		}
	}()
	return sub.ReceiveTimeout(ctx, within)
}

// heard is for news. What is none is nothing.
func (s *Store) heard(news string) {
	f := s.changed.Load()
	if len(news) != selfSize+len(frame.GUID{}) || news[:selfSize] == *s.self.Load() || f == nil {
		return
	}
	(*f)(frame.GUID([]byte(news[selfSize:])))
}

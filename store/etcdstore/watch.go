package etcdstore

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/store"
)

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan store.Change, error) {
	s.use.RLock() // before it is registered: who replaces etcd waits for those that are
	defer s.use.RUnlock()
	ctx, cancel, err := s.beginWatch(ctx)
	if err != nil {
		return nil, err
	}
	key, opts := s.below(prefix)
	source := s.client.Watch(clientv3.WithRequireLeader(ctx), key, append(opts, clientv3.WithCreatedNotify())...)
	// The first answer says that the watch is in place: changes from here on
	// will be seen.
	created, ok := <-source
	if err := created.Err(); !ok || err != nil {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = errors.New("etcd ended it at once")
		}
		cancel()
		s.watches.Done()
		return nil, fmt.Errorf("etcdstore: watch %q: %w", prefix, err)
	}
	out := make(chan store.Change, watchQueue)
	go func() {
		defer s.watches.Done()
		defer cancel()
		defer close(out)
		s.pass(source, out)
	}()
	return out, nil
}

// beginWatch registers a watch that Close waits for; its context ends with the
// caller's and with the etcd that is used.
func (s *Store) beginWatch(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.over(); err != nil {
		return nil, nil, err
	}
	s.watches.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.era, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// pass hands changes on until the source ends or the receiver lags too far.
func (s *Store) pass(source clientv3.WatchChan, out chan<- store.Change) {
	for resp := range source {
		if resp.Err() != nil {
			return
		}
		for _, e := range resp.Events {
			c := store.Change{Entry: s.entry(e.Kv), Deleted: e.Type == clientv3.EventTypeDelete}
			if c.Deleted {
				c.Value = nil
			}
			select {
			case out <- c:
			default:
				return
			}
		}
	}
}

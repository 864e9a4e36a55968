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
	ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	key, opts := s.below(prefix)
	source := s.client.Watch(clientv3.WithRequireLeader(ctx), key, append(opts, clientv3.WithCreatedNotify())...)
	// The first answer confirms the watch: changes from here on will be reported.
	created, ok := <-source
	if err := created.Err(); !ok || err != nil {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = errors.New("etcd ended it at once")
		}
		done()
		return nil, fmt.Errorf("etcdstore: watch %q: %w", prefix, err)
	}
	out := make(chan store.Change, watchQueue)
	go func() {
		defer done()
		defer close(out)
		s.forward(source, out)
	}()
	return out, nil
}

// forward forwards changes until the source ends or the receiver is too far behind.
func (s *Store) forward(source clientv3.WatchChan, out chan<- store.Change) {
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

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/store"
)

// watchQueue is how many changes a watcher may be behind before its channel is closed.
const watchQueue = 1024

// operationTimeout bounds each operation, in addition to the caller's own deadline.
const operationTimeout = 10 * time.Second

// Store keeps its entries in an etcd cluster. Open creates one.
type Store struct {
	prefix string
	client *clientv3.Client

	// lifetime ends with Close, and with it all operations and watches.
	lifetime context.Context //nolint:containedctx // the store's
	end      context.CancelFunc
	inUse    sync.WaitGroup // operations and watches
	mu       sync.Mutex     // serialises new operations and Close
}

var _ store.Store = (*Store)(nil)

func newStore(c *clientv3.Client, prefix string) *Store {
	s := &Store{client: c, prefix: prefix}
	s.lifetime, s.end = context.WithCancel(context.Background())
	return s
}

// use registers an operation or a watch for which Close waits. Its context ends with the
// caller's, and with Close.
func (s *Store) use(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifetime.Err() != nil {
		return nil, nil, fmt.Errorf("etcdstore: %w", store.ErrClosed)
	}
	if err := ctx.Err(); err != nil { // etcd might execute it nevertheless
		return nil, nil, fmt.Errorf("etcdstore: %w", err)
	}
	s.inUse.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.lifetime, cancel)
	return ctx, func() { stop(); cancel(); s.inUse.Done() }, nil
}

// begin returns the context of one operation.
func (s *Store) begin(ctx context.Context) (context.Context, func(), error) {
	ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	return ctx, func() { cancel(); done() }, nil
}

func (s *Store) entry(kv *mvccpb.KeyValue) store.Entry {
	value := kv.Value
	if value == nil {
		value = []byte{}
	}
	return store.Entry{Key: strings.TrimPrefix(string(kv.Key), s.prefix), Value: value, Revision: kv.ModRevision}
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Entry{}, err
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return store.Entry{}, err
	}
	defer done()
	resp, err := s.client.Get(ctx, s.prefix+key)
	if err != nil {
		return store.Entry{}, fmt.Errorf("etcdstore: get %q: %w", key, err)
	}
	if len(resp.Kvs) == 0 {
		return store.Entry{}, fmt.Errorf("etcdstore: get %q: %w", key, store.ErrNotFound)
	}
	return s.entry(resp.Kvs[0]), nil
}

// below returns the key and the options for everything with the prefix.
func (s *Store) below(prefix string) (string, []clientv3.OpOption) {
	full := s.prefix + prefix
	if full == "" {
		return "\x00", []clientv3.OpOption{clientv3.WithFromKey()}
	}
	return full, []clientv3.OpOption{clientv3.WithPrefix()}
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	key, opts := s.below(prefix)
	resp, err := s.client.Get(ctx, key, append(opts, clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))...)
	if err != nil {
		return nil, fmt.Errorf("etcdstore: list %q: %w", prefix, err)
	}
	var out []store.Entry
	for _, kv := range resp.Kvs {
		out = append(out, s.entry(kv))
	}
	return out, nil
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	return s.Apply(ctx, store.OpPut(key, value))
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	resp, err := s.client.Delete(ctx, s.prefix+key)
	if err != nil {
		return fmt.Errorf("etcdstore: delete %q: %w", key, err)
	}
	if resp.Deleted == 0 {
		return fmt.Errorf("etcdstore: delete %q: %w", key, store.ErrNotFound)
	}
	return nil
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops ...store.Op) error {
	if err := store.CheckOps(ops); err != nil {
		return err
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	var conditions []clientv3.Cmp
	var then []clientv3.Op
	for _, op := range ops {
		key := s.prefix + op.Key
		if op.Conditional {
			conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=", op.Revision))
		}
		if op.Delete {
			then = append(then, clientv3.OpDelete(key))
		} else {
			then = append(then, clientv3.OpPut(key, string(op.Value)))
		}
	}
	resp, err := s.client.Txn(ctx).If(conditions...).Then(then...).Commit()
	if err != nil {
		return fmt.Errorf("etcdstore: apply %s: %w", keys(ops), err)
	}
	if !resp.Succeeded {
		return fmt.Errorf("etcdstore: apply %s: %w", keys(ops), store.ErrConflict)
	}
	return nil
}

func keys(ops []store.Op) string {
	names := make([]string, len(ops))
	for i, op := range ops {
		names[i] = op.Key
	}
	return strings.Join(names, ", ")
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.lifetime.Err() != nil {
		s.mu.Unlock()
		return nil
	}
	s.end()
	s.mu.Unlock()
	s.inUse.Wait()
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("etcdstore: close: %w", err)
	}
	return nil
}

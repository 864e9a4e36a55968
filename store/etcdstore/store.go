package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/store"
)

// watchQueue is how many changes a watcher may lag behind before its channel
// is closed.
const watchQueue = 1024

// Store keeps its entries in etcd. Make it with OpenEmbedded or OpenExternal.
type Store struct {
	prefix string
	after  func() error // what to close after the client

	// use is held for reading by whoever uses what follows, and taken to replace it, which
	// begins and ends with nobody using it.
	use      sync.RWMutex
	client   *clientv3.Client
	embedded *embedded // nil for an external one; the pointer stays, what it has may change

	// life ends with Close, and with it all operations and watches.
	life    context.Context
	end     context.CancelFunc
	watches sync.WaitGroup
	mu      sync.Mutex // guards starting a watch against Close, and era

	// era ends with the etcd that is used, and with it all watches.
	era    context.Context
	endEra context.CancelFunc
}

var _ store.Store = (*Store)(nil)

func newStore(c *clientv3.Client, prefix string, after func() error) *Store {
	s := &Store{client: c, prefix: prefix, after: after}
	s.life, s.end = context.WithCancel(context.Background())
	s.era, s.endEra = context.WithCancel(s.life)
	return s
}

// over says why nothing can be asked of the store any more.
func (s *Store) over() error {
	if s.embedded != nil && s.embedded.broken.ctx.Err() != nil {
		return context.Cause(s.embedded.broken.ctx)
	}
	if s.life.Err() != nil {
		return fmt.Errorf("etcdstore: %w", store.ErrClosed)
	}
	return nil
}

// why is the reason of an operation's error: that etcd has broken meanwhile, if it has.
func (s *Store) why(err error) error {
	if s.embedded != nil && s.embedded.broken.ctx.Err() != nil {
		return context.Cause(s.embedded.broken.ctx)
	}
	return err
}

// beginWrite is begin for an operation that writes so many bytes: an embedded store
// accepts it only if it has the room.
func (s *Store) beginWrite(ctx context.Context, bytes int) (context.Context, func(), error) {
	ctx, done, err := s.begin(ctx)
	if err != nil || s.embedded == nil {
		return ctx, done, err
	}
	written, err := s.embedded.room.admit(ctx, bytes)
	if err != nil {
		done()
		return nil, nil, err
	}
	return ctx, func() { written(); done() }, nil
}

// begin returns the context of one operation.
func (s *Store) begin(ctx context.Context) (context.Context, func(), error) {
	if err := s.over(); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil { // etcd may carry it out all the same
		return nil, nil, fmt.Errorf("etcdstore: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	stop := context.AfterFunc(s.life, cancel)
	s.use.RLock()
	return ctx, func() { s.use.RUnlock(); stop(); cancel() }, nil
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
		return store.Entry{}, fmt.Errorf("etcdstore: get %q: %w", key, s.why(err))
	}
	if len(resp.Kvs) == 0 {
		return store.Entry{}, fmt.Errorf("etcdstore: get %q: %w", key, store.ErrNotFound)
	}
	return s.entry(resp.Kvs[0]), nil
}

// below returns the key and options that stand for everything with the prefix.
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
		return nil, fmt.Errorf("etcdstore: list %q: %w", prefix, s.why(err))
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
	ctx, done, err := s.beginWrite(ctx, len(key))
	if err != nil {
		return fmt.Errorf("etcdstore: delete %q: %w", key, err)
	}
	defer done()
	resp, err := s.client.Delete(ctx, s.prefix+key)
	if err != nil {
		return fmt.Errorf("etcdstore: delete %q: %w", key, s.why(err))
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
	ctx, done, err := s.beginWrite(ctx, size(ops))
	if err != nil {
		return fmt.Errorf("etcdstore: apply %s: %w", keys(ops), err)
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
		return fmt.Errorf("etcdstore: apply %s: %w", keys(ops), s.why(err))
	}
	if !resp.Succeeded {
		return fmt.Errorf("etcdstore: apply %s: %w", keys(ops), store.ErrConflict)
	}
	return nil
}

// size is how many bytes of keys and values the operations have.
func size(ops []store.Op) (bytes int) {
	for _, op := range ops {
		bytes += len(op.Key) + len(op.Value)
	}
	return bytes
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
	if s.over() != nil { // an etcd that has broken ends with the process
		s.mu.Unlock()
		return nil
	}
	s.end()
	s.mu.Unlock()
	s.use.Lock() // all operations have ended then
	defer s.use.Unlock()
	s.watches.Wait()
	err := s.client.Close()
	if s.after != nil {
		err = errors.Join(err, s.after())
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("etcdstore: close: %w", err)
	}
	return nil
}

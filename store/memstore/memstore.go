package memstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/store"
)

// watchQueue is how many changes a watcher may lag behind before its channel
// is closed.
const watchQueue = 1024

// Store keeps its entries in a map. The zero value is not usable; call New.
type Store struct {
	mu       sync.Mutex
	entries  map[string]store.Entry
	revision int64
	watchers map[*watcher]struct{}
	closed   bool
}

type watcher struct {
	prefix string
	ch     chan store.Change
	stop   func() bool
}

var _ store.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{
		entries:  make(map[string]store.Entry),
		watchers: make(map[*watcher]struct{}),
	}
}

// usable is called with the lock held.
func (s *Store) usable(ctx context.Context) error {
	if s.closed {
		return fmt.Errorf("memstore: %w", store.ErrClosed)
	}
	return ctx.Err()
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Entry{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return store.Entry{}, err
	}
	e, ok := s.entries[key]
	if !ok {
		return store.Entry{}, fmt.Errorf("memstore: get %q: %w", key, store.ErrNotFound)
	}
	e.Value = bytes.Clone(e.Value)
	return e, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	var out []store.Entry
	for k, e := range s.entries {
		if strings.HasPrefix(k, prefix) {
			e.Value = bytes.Clone(e.Value)
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	if _, ok := s.entries[key]; !ok {
		return fmt.Errorf("memstore: delete %q: %w", key, store.ErrNotFound)
	}
	s.revision++
	s.apply(store.OpDelete(key))
	return nil
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops ...store.Op) error {
	if err := store.CheckOps(ops); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	for _, op := range ops {
		if op.Conditional && s.entries[op.Key].Revision != op.Revision {
			return fmt.Errorf("memstore: apply %q: %w", op.Key, store.ErrConflict)
		}
	}
	s.revision++
	for _, op := range ops {
		s.apply(op)
	}
	return nil
}

// apply performs one operation at the current revision, with the lock held.
func (s *Store) apply(op store.Op) {
	e := store.Entry{Key: op.Key, Revision: s.revision}
	if op.Delete {
		if _, ok := s.entries[op.Key]; !ok {
			return
		}
		delete(s.entries, op.Key)
	} else {
		e.Value = bytes.Clone(op.Value)
		if e.Value == nil {
			e.Value = []byte{}
		}
		s.entries[op.Key] = e
	}
	for w := range s.watchers {
		if !strings.HasPrefix(op.Key, w.prefix) {
			continue
		}
		change := store.Change{Entry: e, Deleted: op.Delete}
		change.Value = bytes.Clone(e.Value)
		select {
		case w.ch <- change:
		default:
			s.drop(w)
		}
	}
}

// drop ends a watch, with the lock held.
func (s *Store) drop(w *watcher) {
	if _, ok := s.watchers[w]; !ok {
		return
	}
	delete(s.watchers, w)
	close(w.ch)
	w.stop()
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan store.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	w := &watcher{prefix: prefix, ch: make(chan store.Change, watchQueue)}
	w.stop = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(w)
	})
	s.watchers[w] = struct{}{}
	return w.ch, nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for w := range s.watchers {
		s.drop(w)
	}
	return nil
}

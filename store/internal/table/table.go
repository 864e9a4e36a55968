// Package table holds the entries of a store in memory, with its watchers. memstore and
// pebblestore share it.
package table

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/store"
)

// watchQueue is how many changes a watcher may be behind before its channel is closed.
const watchQueue = 1024

// Table is a set of entries. It is safe for concurrent use.
type Table struct {
	mu       sync.RWMutex
	entries  map[string]store.Entry
	revision int64
	bytes    int64
	watchers map[*watcher]struct{}
	closed   bool
}

type watcher struct {
	prefix string
	ch     chan store.Change
	stop   func() bool
}

// New returns an empty table.
func New() *Table {
	return &Table{entries: make(map[string]store.Entry), watchers: make(map[*watcher]struct{})}
}

// Load sets the content of a table that is not in use yet.
func (t *Table) Load(entries []store.Entry, revision int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revision = revision
	for _, e := range entries {
		t.set(e)
	}
}

// Revision returns the revision of the last change.
func (t *Table) Revision() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.revision
}

// Bytes returns the total length of all keys and values.
func (t *Table) Bytes() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.bytes
}

// usable returns an error if the table is closed or ctx has ended. The lock is held.
func (t *Table) usable(ctx context.Context) error {
	if t.closed {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Usable returns an error if the table is closed or ctx has ended.
func (t *Table) Usable(ctx context.Context) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.usable(ctx)
}

// Get returns a copy of the key's entry, or store.ErrNotFound.
func (t *Table) Get(ctx context.Context, key string) (store.Entry, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Entry{}, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if err := t.usable(ctx); err != nil {
		return store.Entry{}, fmt.Errorf("get %q: %w", key, err)
	}
	e, ok := t.entries[key]
	if !ok {
		return store.Entry{}, fmt.Errorf("get %q: %w", key, store.ErrNotFound)
	}
	e.Value = bytes.Clone(e.Value)
	return e, nil
}

// List returns copies of all entries below the prefix, sorted by key.
func (t *Table) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if err := t.usable(ctx); err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, err)
	}
	var out []store.Entry
	for k, e := range t.entries {
		if strings.HasPrefix(k, prefix) {
			e.Value = bytes.Clone(e.Value)
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// All returns an iterator over the entries in no particular order. Their values must not be
// changed, and the table must not be changed during the iteration.
func (t *Table) All() iter.Seq[store.Entry] {
	return func(yield func(store.Entry) bool) {
		t.mu.RLock()
		defer t.mu.RUnlock()
		for _, e := range t.entries {
			if !yield(e) {
				return
			}
		}
	}
}

// Find returns the key's entry. Its value must not be changed.
func (t *Table) Find(key string) (store.Entry, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e, ok := t.entries[key]
	return e, ok
}

// Apply performs the operations as one change if their conditions hold; mustExist adds the
// condition that every key exists.
func (t *Table) Apply(ctx context.Context, ops []store.Op, mustExist bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(ctx); err != nil {
		return err
	}
	find := func(key string) (store.Entry, bool) { e, ok := t.entries[key]; return e, ok }
	if err := Conditions(ops, mustExist, find); err != nil {
		return err
	}
	t.change(Changes(ops, t.revision+1, find), t.revision+1)
	return nil
}

// Conditions returns an error unless all conditions of the operations hold for the entries that
// find returns.
func Conditions(ops []store.Op, mustExist bool, find func(key string) (store.Entry, bool)) error {
	for _, op := range ops {
		if e, ok := find(op.Key); mustExist && !ok {
			return fmt.Errorf("change %q: %w", op.Key, store.ErrNotFound)
		} else if op.Conditional && e.Revision != op.Revision {
			return fmt.Errorf("change %q: %w", op.Key, store.ErrConflict)
		}
	}
	return nil
}

// Changes returns the changes that the operations make at a revision. The removal of an entry
// that find does not return is no change.
func Changes(ops []store.Op, revision int64, find func(key string) (store.Entry, bool)) []store.Change {
	changes := make([]store.Change, 0, len(ops))
	for _, op := range ops {
		c := store.Change{Entry: store.Entry{Key: op.Key, Revision: revision}, Deleted: op.Delete}
		if op.Delete {
			if _, ok := find(op.Key); !ok {
				continue
			}
		} else {
			c.Value = append([]byte{}, op.Value...)
		}
		changes = append(changes, c)
	}
	return changes
}

// Change applies changes that Changes returned, and reports them to the watchers.
func (t *Table) Change(changes []store.Change, revision int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change(changes, revision)
}

// change is Change with the lock held.
func (t *Table) change(changes []store.Change, revision int64) {
	t.revision = revision
	for _, c := range changes {
		if c.Deleted {
			t.remove(c.Key)
		} else {
			t.set(c.Entry)
		}
		for w := range t.watchers {
			if strings.HasPrefix(c.Key, w.prefix) {
				t.report(w, c)
			}
		}
	}
}

func (t *Table) set(e store.Entry) {
	t.remove(e.Key)
	t.entries[e.Key] = e
	t.bytes += int64(len(e.Key) + len(e.Value))
}

func (t *Table) remove(key string) {
	if old, ok := t.entries[key]; ok {
		t.bytes -= int64(len(key) + len(old.Value))
		delete(t.entries, key)
	}
}

// report sends a change to a watcher, and ends the watch if its queue is full. The lock is held.
func (t *Table) report(w *watcher, c store.Change) {
	c.Value = bytes.Clone(c.Value)
	select {
	case w.ch <- c:
	default:
		t.drop(w)
	}
}

// drop ends a watch. The lock is held.
func (t *Table) drop(w *watcher) {
	if _, ok := t.watchers[w]; !ok {
		return
	}
	delete(t.watchers, w)
	close(w.ch)
	w.stop()
}

// Watch reports the changes below the prefix, as described by store.Store.
func (t *Table) Watch(ctx context.Context, prefix string) (<-chan store.Change, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(ctx); err != nil {
		return nil, fmt.Errorf("watch %q: %w", prefix, err)
	}
	w := &watcher{prefix: prefix, ch: make(chan store.Change, watchQueue)}
	w.stop = context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.drop(w)
	})
	t.watchers[w] = struct{}{}
	return w.ch, nil
}

// Close ends all watches; further calls return store.ErrClosed.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for w := range t.watchers {
		t.drop(w)
	}
}

package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/store"
)

const (
	// storeTimeout bounds each access to the store.
	storeTimeout = 5 * time.Second
	// effectTimeout bounds the wait for a change to take effect.
	effectTimeout = 30 * time.Second
)

var errEnded = errors.New("the service has ended")

// Add declares a new item. It returns when the item has taken effect.
func (c *Collection[T]) Add(ctx context.Context, name string, v T) error {
	return c.declare(ctx, name, v, func(was entry[T]) error {
		switch {
		case was.Configured:
			return ErrConfigured
		case was.item() != nil:
			return ErrExists
		}
		return nil
	})
}

// Put declares an item, and replaces an existing one of that name. If revision is not zero, an item
// with that revision must exist.
func (c *Collection[T]) Put(ctx context.Context, name string, v T, revision int64) error {
	return c.declare(ctx, name, v, func(was entry[T]) error {
		if was.Revision == 0 && revision == 0 {
			return nil
		}
		return was.checkChange(revision)
	})
}

// Replace replaces the existing item of a name. If revision is not zero, the item must have that
// revision.
func (c *Collection[T]) Replace(ctx context.Context, name string, v T, revision int64) error {
	return c.declare(ctx, name, v, func(was entry[T]) error { return was.checkChange(revision) })
}

// declare stores a value unless it conflicts with others, or check returns an error for the
// existing entry of its name.
func (c *Collection[T]) declare(ctx context.Context, name string, v T, check func(was entry[T]) error) error {
	return c.change(ctx, name, func(was entry[T]) (op store.Op, err error) {
		if err := check(was); err != nil {
			return op, c.annotate(name, err)
		}
		if n := len(c.entries); was.Revision == 0 && n >= c.MaxItems {
			return op, fmt.Errorf("%d %s: %w", n, c.Plural, ErrFull)
		}
		if err := c.Conflicts(name, v, c.Items()); err != nil {
			return op, err
		}
		return c.put(name, v, false, was.Revision)
	})
}

// Remove removes the item of a name. If revision is not zero, the item must have that revision.
// Remove returns when the removal has taken effect.
func (c *Collection[T]) Remove(ctx context.Context, name string, revision int64) error {
	return c.change(ctx, name, func(was entry[T]) (op store.Op, err error) {
		if err = was.checkChange(revision); err == nil {
			err = c.InUse(name)
		}
		if err != nil {
			return op, c.annotate(name, err)
		}
		return c.remove(was), nil
	})
}

// checkChange returns an error if the API may not change the entry.
func (e entry[T]) checkChange(revision int64) error {
	switch {
	case e.Revision == 0:
		return ErrUnknown
	case e.Configured:
		return ErrConfigured
	case revision != 0 && revision != e.Revision:
		return ErrChanged
	}
	return nil
}

// change makes one change and waits for its effect. It calls decide with the existing entry of the
// name while c.mu is held.
func (c *Collection[T]) change(ctx context.Context, name string, decide func(was entry[T]) (store.Op, error)) error {
	stored, err := c.storeChange(ctx, name, decide)
	if err == nil {
		err = c.annotate(name, c.await(ctx, stored))
	}
	return err
}

// storeChange stores one change and returns when the change is visible.
func (c *Collection[T]) storeChange(ctx context.Context, name string, decide func(was entry[T]) (store.Op, error)) ([]*waiter, error) {
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	c.mu.Lock()
	op, err := decide(c.entries[name])
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	stored, err := c.write(ctx, []store.Op{op})
	if err != nil {
		return nil, c.annotate(name, err)
	}
	return stored, nil
}

// annotate adds the item's kind and name to an error that is not nil.
func (c *Collection[T]) annotate(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q: %w", c.Singular, name, err)
}

// lock waits until the stored items have been read and no other writer holds the lock.
func (c *Collection[T]) lock(ctx context.Context) error {
	select {
	case <-c.writeToken:
	case <-c.ended:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-c.ended:
		c.unlock()
		return errEnded
	default:
		return nil
	}
}

func (c *Collection[T]) unlock() { c.writeToken <- struct{}{} }

// put returns the operation that stores a value if the entry of its name still has the given
// revision.
func (c *Collection[T]) put(name string, v T, configured bool, revision int64) (store.Op, error) {
	encoded, err := json.Marshal(v)
	if err != nil {
		return store.Op{}, err
	}
	b, err := json.Marshal(record{configured, encoded})
	return store.OpUpdate(c.Prefix+name, b, revision), err
}

func (c *Collection[T]) remove(was entry[T]) store.Op {
	return store.Op{Key: c.Prefix + was.Name, Delete: true, Conditional: true, Revision: was.Revision}
}

// write stores changes, and waits until they are visible. The caller holds the lock of writers.
func (c *Collection[T]) write(ctx context.Context, ops []store.Op) ([]*waiter, error) {
	c.mu.Lock()
	stored := map[string]*waiter{}
	for _, op := range ops {
		name := op.Key[len(c.Prefix):]
		stored[name] = &waiter{make(chan struct{}), make(chan struct{})}
		c.waiting[name] = stored[name]
	}
	c.mu.Unlock()
	if err := c.store(ctx, ops); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		for name := range stored {
			delete(c.waiting, name)
			c.Abandoned(name)
		}
		return nil, err
	}
	all := slices.Collect(maps.Values(stored))
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	for _, w := range all {
		if err := c.waitFor(ctx, w.seen); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// await waits until stored changes have taken effect.
func (c *Collection[T]) await(ctx context.Context, stored []*waiter) error {
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	for _, w := range stored {
		if err := c.waitFor(ctx, w.effect); err != nil {
			return err
		}
	}
	return nil
}

// waitFor waits until done is closed. Its errors say that the change has been stored.
func (c *Collection[T]) waitFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-c.ended:
		return fmt.Errorf("stored, and in force when the service runs again: %w", errEnded)
	case <-ctx.Done():
		return fmt.Errorf("stored, but not in force yet: %w", context.Cause(ctx))
	}
}

// store applies operations to the store. It returns ErrChanged if another writer was first.
func (c *Collection[T]) store(ctx context.Context, ops []store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := c.Store.Apply(ctx, ops...)
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

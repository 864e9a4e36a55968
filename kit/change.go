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
	// effectTimeout is how long whoever made a change waits for its effect.
	effectTimeout = 30 * time.Second
)

var errEnded = errors.New("the service has ended")

// Add declares something new. It returns when that has taken effect.
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

// Put declares something, be it new or in the place of what has that name. Revision is what
// that is expected to have, zero for any.
func (c *Collection[T]) Put(ctx context.Context, name string, v T, revision int64) error {
	return c.declare(ctx, name, v, func(was entry[T]) error {
		if was.Revision == 0 && revision == 0 {
			return nil
		}
		return was.mayChange(revision)
	})
}

// Replace declares something in the place of what has that name. Revision is what that is
// expected to have, zero for any.
func (c *Collection[T]) Replace(ctx context.Context, name string, v T, revision int64) error {
	return c.declare(ctx, name, v, func(was entry[T]) error { return was.mayChange(revision) })
}

// declare stores a value, unless something stands against it: may says so of what has its
// name.
func (c *Collection[T]) declare(ctx context.Context, name string, v T, may func(was entry[T]) error) error {
	return c.change(ctx, name, func(was entry[T]) (op store.Op, err error) {
		if err := may(was); err != nil {
			return op, c.about(name, err)
		}
		if n := len(c.entries); was.Revision == 0 && n >= c.Most {
			return op, fmt.Errorf("%d %s: %w", n, c.Nouns, ErrFull)
		}
		if err := c.Contradicts(name, v, c.Items()); err != nil {
			return op, err
		}
		return c.put(name, v, false, was.Revision)
	})
}

// Remove withdraws what has that name. Revision is what it is expected to have, zero for
// any. It returns when that has taken effect.
func (c *Collection[T]) Remove(ctx context.Context, name string, revision int64) error {
	return c.change(ctx, name, func(was entry[T]) (op store.Op, err error) {
		if err = was.mayChange(revision); err == nil {
			err = c.InUse(name)
		}
		if err != nil {
			return op, c.about(name, err)
		}
		return c.remove(was), nil
	})
}

// mayChange says what stands against a change by the API.
func (e entry[T]) mayChange(revision int64) error {
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

// change makes a change of one name. decide is given what has the name now; the lock is
// held.
func (c *Collection[T]) change(ctx context.Context, name string, decide func(was entry[T]) (store.Op, error)) error {
	stored, err := c.begin(ctx, name, decide)
	if err == nil {
		err = c.about(name, c.await(ctx, stored))
	}
	return err
}

// begin makes a change of one name that is seen when it returns.
func (c *Collection[T]) begin(ctx context.Context, name string, decide func(was entry[T]) (store.Op, error)) ([]*waiter, error) {
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
		return nil, c.about(name, err)
	}
	return stored, nil
}

// about says which item an error is about, if there is one.
func (c *Collection[T]) about(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q: %w", c.Noun, name, err)
}

// lock waits until what there is has been read, and nobody else changes it.
func (c *Collection[T]) lock(ctx context.Context) error {
	select {
	case <-c.turn:
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

func (c *Collection[T]) unlock() { c.turn <- struct{}{} }

// put is the operation that stores a value if the one that has its name is still that of a
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

// write stores changes, and waits until they are seen. c is locked.
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
		if err := c.until(ctx, w.seen); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// await waits until changes have taken effect.
func (c *Collection[T]) await(ctx context.Context, stored []*waiter) error {
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	for _, w := range stored {
		if err := c.until(ctx, w.effect); err != nil {
			return err
		}
	}
	return nil
}

// until waits for something to become of what has been stored.
func (c *Collection[T]) until(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-c.ended:
		return fmt.Errorf("stored, and in force when the service runs again: %w", errEnded)
	case <-ctx.Done():
		return fmt.Errorf("stored, but not in force yet: %w", context.Cause(ctx))
	}
}

// store applies operations to the store. That somebody else was first is ErrChanged.
func (c *Collection[T]) store(ctx context.Context, ops []store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := c.Store.Apply(ctx, ops...)
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

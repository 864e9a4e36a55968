package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/store"
)

const (
	// maxOps is the number of operations that a store accepts at once.
	maxOps = 128
	// loadTries bounds the attempts to load while another controller changes the same entries.
	loadTries = 8
)

// Load reads the stored items, and replaces those of the earlier configuration by the configured
// ones. configured is nil if the configuration cannot declare items. Load publishes no changes. It
// must be given the context that Run will be given.
func (c *Collection[T]) Load(ctx context.Context, configured map[string]T) error {
	err := ErrChanged
	for try := 0; errors.Is(err, ErrChanged) && try < loadTries; try++ {
		err = c.load(ctx, configured)
	}
	if err != nil {
		return fmt.Errorf("read the %s: %w", c.Plural, err)
	}
	close(c.loaded)
	c.unlock()
	return nil
}

func (c *Collection[T]) load(ctx context.Context, configured map[string]T) error {
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	entries, err := c.Store.List(bounded, c.Prefix)
	if err != nil {
		return err
	}
	c.merge(c.diff(entries))
	ops, err := c.configuredOps(configured)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(ops, maxOps) {
		if err := c.store(ctx, some); err != nil {
			return err
		}
	}
	if entries, err = c.open(ctx); err != nil {
		return err
	}
	c.merge(c.diff(entries))
	return nil
}

// configuredOps returns the operations that store the configured items and remove those that have
// left the configuration. An item that is in use is kept, and belongs to the API from then on.
func (c *Collection[T]) configuredOps(configured map[string]T) ([]store.Op, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ops []store.Op
	for _, name := range slices.Sorted(maps.Keys(c.entries)) {
		was := c.entries[name]
		if _, still := configured[name]; !was.Configured || still {
			continue
		}
		if err := c.InUse(name); err == nil || was.broken != nil {
			ops = append(ops, c.remove(was))
			continue
		}
		c.Log.Warn("an item has left the configuration but is in use: it is kept, and can be changed through the API", c.Singular, name)
		keep, err := c.put(name, was.Value, false, was.Revision)
		if err != nil {
			return nil, err
		}
		ops = append(ops, keep)
	}
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		was := c.entries[name]
		put, err := c.put(name, configured[name], true, was.Revision)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(put.Value, was.stored) {
			ops = append(ops, put)
		}
	}
	return ops, nil
}

// Fits returns an error if the configured items, together with those declared through the API,
// exceed MaxItems.
func (c *Collection[T]) Fits(configured map[string]T) error {
	n := len(configured)
	for _, x := range c.Items() {
		if _, replaced := configured[x.Name]; !x.Configured && !replaced {
			n++
		}
	}
	if n > c.MaxItems {
		return fmt.Errorf("%d %s of the configuration, together with those of the API, make %d: %w (%d)", len(configured), c.Plural, n, ErrFull, c.MaxItems)
	}
	return nil
}

// Configure replaces the items of the earlier configuration by the given ones. It returns when they
// have taken effect.
func (c *Collection[T]) Configure(ctx context.Context, configured map[string]T) error {
	stored, err := c.storeConfigured(ctx, configured)
	for some := range slices.Chunk(stored, maxOps) {
		if err == nil {
			err = c.await(ctx, some)
		}
	}
	if err != nil {
		return fmt.Errorf("the %s of the configuration: %w", c.Plural, err)
	}
	return nil
}

// storeConfigured stores the configured items and returns when they are visible.
func (c *Collection[T]) storeConfigured(ctx context.Context, configured map[string]T) (all []*waiter, err error) {
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	ops, err := c.configuredOps(configured)
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(ops, maxOps) {
		stored, err := c.write(ctx, some)
		if err != nil {
			return nil, err
		}
		all = append(all, stored...)
	}
	return all, nil
}

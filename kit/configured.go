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
	// maxOps is how many operations a store takes at once.
	maxOps = 128
	// loadTries is how often a start is tried again when another controller changes what
	// it reads.
	loadTries = 8
)

// Load reads what the store has and makes what is configured part of it, in the place of
// what was; nil if nothing can be. Of that no changes are told. ctx is to be that of Run.
func (c *Collection[T]) Load(ctx context.Context, configured map[string]T) error {
	err := ErrChanged
	for try := 0; errors.Is(err, ErrChanged) && try < loadTries; try++ {
		err = c.load(ctx, configured)
	}
	if err != nil {
		return fmt.Errorf("read the %s: %w", c.Nouns, err)
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
	c.merge(c.since(entries))
	ops, err := c.conform(configured)
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
	c.merge(c.since(entries))
	return nil
}

// conform is what makes the store have what is configured, and of what was that alone
// which is in use.
func (c *Collection[T]) conform(configured map[string]T) ([]store.Op, error) {
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
		c.Log.Warn("not configured any more, but in use: it is kept, and the API's from now on", c.Noun, name)
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

// Fits says whether what is configured has room beside what the API has declared.
func (c *Collection[T]) Fits(configured map[string]T) error {
	n := len(configured)
	for _, x := range c.Items() {
		if _, replaced := configured[x.Name]; !x.Configured && !replaced {
			n++
		}
	}
	if n > c.Most {
		return fmt.Errorf("%d %s of the configuration, and those of the API, are %d: %w (%d)", len(configured), c.Nouns, n, ErrFull, c.Most)
	}
	return nil
}

// Configure takes what is configured now in the place of what was. It returns when that
// has taken effect.
func (c *Collection[T]) Configure(ctx context.Context, configured map[string]T) error {
	stored, err := c.beginConfigured(ctx, configured)
	for some := range slices.Chunk(stored, maxOps) {
		if err == nil {
			err = c.await(ctx, some)
		}
	}
	if err != nil {
		return fmt.Errorf("the %s of the configuration: %w", c.Nouns, err)
	}
	return nil
}

// beginConfigured stores what is configured now, which is seen when it returns.
func (c *Collection[T]) beginConfigured(ctx context.Context, configured map[string]T) (all []*waiter, err error) {
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	ops, err := c.conform(configured)
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

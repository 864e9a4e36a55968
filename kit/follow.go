package kit

import (
	"context"
	"maps"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/store"
)

const (
	// maxBatch bounds the changes that are applied together.
	maxBatch = 1024
	// reopenAfter is the pause before a watch that has ended is opened again.
	reopenAfter = time.Second
)

// Run follows the store until ctx ends. Call it after Load.
func (c *Collection[T]) Run(ctx context.Context) {
	defer close(c.ended)
	defer c.items.Store(nil)
	for ctx.Err() == nil {
		for x := range c.feed { // until the watch ends
			c.apply(ctx, c.readBatch(x))
		}
		c.stopWatch()
		reported := false
		for tasks.Sleep(ctx, reopenAfter) == nil {
			entries, err := c.open(ctx)
			if err == nil {
				c.applyListing(ctx, entries)
				break
			}
			if !reported {
				c.Log.Warn("the store cannot be watched: changes by other controllers are not seen; trying again", "what", c.Plural, "error", err)
			}
			reported = true
		}
	}
}

// open opens a watch and lists the entries. After an error there is no watch.
func (c *Collection[T]) open(ctx context.Context) ([]store.Entry, error) {
	watchCtx, stopWatch := context.WithCancel(ctx)
	feed, err := c.Store.Watch(watchCtx, c.Prefix)
	if err != nil {
		stopWatch()
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	entries, err := c.Store.List(bounded, c.Prefix)
	if err != nil {
		stopWatch()
		return nil, err
	}
	c.feed, c.stopWatch = feed, stopWatch
	return entries, nil
}

// readBatch returns a change together with those that have arrived since.
func (c *Collection[T]) readBatch(first store.Change) []store.Change {
	batch := []store.Change{first}
	for len(c.feed) > 0 && len(batch) < maxBatch { // nobody else receives from feed
		batch = append(batch, <-c.feed)
	}
	return batch
}

// applyListing replaces the entries by a listing. It then releases everybody who waits for a change
// from before the listing.
func (c *Collection[T]) applyListing(ctx context.Context, entries []store.Entry) {
	c.mu.Lock()
	waiting := maps.Clone(c.waiting)
	c.mu.Unlock()
	c.apply(ctx, c.diff(entries))
	for name, w := range waiting {
		if c.removeWaiter(name, w) {
			close(w.seen)
			close(w.effect)
		}
	}
}

// diff returns the changes that turn the known entries into those of a listing.
func (c *Collection[T]) diff(entries []store.Entry) (batch []store.Change) {
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Key[len(c.Prefix):]] = true
		batch = append(batch, store.Change{Entry: e})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.entries {
		if !there[name] {
			batch = append(batch, store.Change{Entry: store.Entry{Key: c.Prefix + name}, Deleted: true})
		}
	}
	return batch
}

// apply applies changes of the store, and releases those who wait for them.
func (c *Collection[T]) apply(ctx context.Context, batch []store.Change) {
	names, changes := c.merge(batch)
	waiting := c.takeWaiters(names)
	done := func(name string) {
		if w := waiting[name]; w != nil {
			close(w.effect)
		}
	}
	follows := c.applyItem
	if follows == nil {
		if len(changes) > 0 {
			c.Changed(ctx, changes)
		}
		follows = func(_ string, done func()) { done() }
	}
	for _, w := range waiting {
		close(w.seen)
	}
	following := map[string]bool{}
	for _, x := range changes {
		following[x.Name] = true
		follows(x.Name, func() { c.publishChange(x); done(x.Name) })
	}
	for _, name := range names {
		if !following[name] {
			done(name)
		}
	}
}

// takeWaiters removes and returns the waiters for changes of these names.
func (c *Collection[T]) takeWaiters(names []string) map[string]*waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]*waiter{}
	for _, name := range names {
		if w := c.waiting[name]; w != nil {
			out[name] = w
			delete(c.waiting, name)
		}
	}
	return out
}

// removeWaiter removes a waiter, and reports whether it was still registered.
func (c *Collection[T]) removeWaiter(name string, w *waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[name] != w {
		return false
	}
	delete(c.waiting, name)
	return true
}

// merge merges changes of the store into the entries. It returns the names of the changed entries,
// and the changes of those that were or are in force.
func (c *Collection[T]) merge(batch []store.Change) (names []string, changes []Change[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := map[string]entry[T]{} // the entries before the batch
	for _, x := range batch {
		name := x.Key[len(c.Prefix):]
		was := c.entries[name]
		if x.Revision != 0 && x.Revision <= was.Revision || x.Deleted && was.Revision == 0 {
			continue // the listing already had it
		}
		if _, seen := before[name]; !seen {
			before[name], names = was, append(names, name)
		}
		if x.Deleted {
			delete(c.entries, name)
			continue
		}
		e := c.decodeEntry(x.Entry)
		if e.broken != nil {
			c.Log.Error("a stored "+c.Singular+" cannot be decoded", "name", name, "error", e.broken)
		}
		c.entries[name] = e
	}
	for _, name := range names {
		if x := (Change[T]{name, before[name].item(), c.entries[name].item()}); x.Before != nil || x.After != nil {
			changes = append(changes, x)
		}
	}
	c.updateItems(names)
	return names, changes
}

// item returns the entry's item, or nil if there is no entry or it is broken.
func (e entry[T]) item() *Item[T] {
	if e.Revision == 0 || e.broken != nil {
		return nil
	}
	return &e.Item
}

// publishChange publishes an event for a change.
func (c *Collection[T]) publishChange(x Change[T]) {
	attrs := map[string]any{"name": x.Name}
	verb := "removed"
	if x.After != nil {
		attrs[c.Singular] = c.EventPayload(x.After.Value)
		verb = "added"
		if x.Before != nil {
			verb = "changed"
		}
	}
	c.Publish(c.Event+"."+verb, attrs)
}

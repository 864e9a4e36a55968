package kit

import (
	"context"
	"maps"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/store"
)

const (
	// maxBatch bounds the changes that are taken at once.
	maxBatch = 1024
	// reopenAfter is the pause before a watch that ended is begun anew.
	reopenAfter = time.Second
)

// Run follows the store until ctx ends. Call it after Load.
func (c *Collection[T]) Run(ctx context.Context) {
	defer close(c.ended)
	defer c.items.Store(nil)
	for ctx.Err() == nil {
		for x := range c.feed { // until the watch ends
			c.apply(ctx, c.more(x))
		}
		c.unwatch()
		said := false
		for tasks.Sleep(ctx, reopenAfter) == nil {
			entries, err := c.open(ctx)
			if err == nil {
				c.take(ctx, entries)
				break
			}
			if !said {
				c.Log.Warn("the store is not watched: what others declare is not seen; it is tried again", "what", c.Nouns, "error", err)
			}
			said = true
		}
	}
}

// open begins a watch and lists what there is. An error leaves no watch.
func (c *Collection[T]) open(ctx context.Context) ([]store.Entry, error) {
	watching, unwatch := context.WithCancel(ctx)
	feed, err := c.Store.Watch(watching, c.Prefix)
	if err != nil {
		unwatch()
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	entries, err := c.Store.List(bounded, c.Prefix)
	if err != nil {
		unwatch()
		return nil, err
	}
	c.feed, c.unwatch = feed, unwatch
	return entries, nil
}

// more is a change with those that have come since.
func (c *Collection[T]) more(first store.Change) []store.Change {
	batch := []store.Change{first}
	for len(c.feed) > 0 && len(batch) < maxBatch { // nobody else takes any
		batch = append(batch, <-c.feed)
	}
	return batch
}

// take makes a listing what there is. Then whoever waits for a change of before has it.
func (c *Collection[T]) take(ctx context.Context, entries []store.Entry) {
	c.mu.Lock()
	waiting := maps.Clone(c.waiting)
	c.mu.Unlock()
	c.apply(ctx, c.since(entries))
	for name, w := range waiting {
		if c.claim(name, w) {
			close(w.seen)
			close(w.effect)
		}
	}
}

// since is a listing as changes of what there was.
func (c *Collection[T]) since(entries []store.Entry) (batch []store.Change) {
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

// apply has changes of the store take effect.
func (c *Collection[T]) apply(ctx context.Context, batch []store.Change) {
	names, changes := c.merge(batch)
	waiting := c.waitersOf(names)
	done := func(name string) {
		if w := waiting[name]; w != nil {
			close(w.effect)
		}
	}
	follows := c.follow
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
		follows(x.Name, func() { c.tell(x); done(x.Name) })
	}
	for _, name := range names {
		if !following[name] {
			done(name)
		}
	}
}

// waitersOf takes out who waits for changes of these names to be seen.
func (c *Collection[T]) waitersOf(names []string) map[string]*waiter {
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

// claim takes a waiter out, and reports whether it was still there.
func (c *Collection[T]) claim(name string, w *waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[name] != w {
		return false
	}
	delete(c.waiting, name)
	return true
}

// merge makes changes of the store part of what there is. It returns the names of the
// entries that are others now, and what became of those of them that are in force.
func (c *Collection[T]) merge(batch []store.Change) (names []string, changes []Change[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := map[string]entry[T]{} // as it was before the batch
	for _, x := range batch {
		name := x.Key[len(c.Prefix):]
		was := c.entries[name]
		if x.Revision != 0 && x.Revision <= was.Revision || x.Deleted && was.Revision == 0 {
			continue // it was so in the listing already
		}
		if _, seen := before[name]; !seen {
			before[name], names = was, append(names, name)
		}
		if x.Deleted {
			delete(c.entries, name)
			continue
		}
		e := c.read(x.Entry)
		if e.broken != nil {
			c.Log.Error("a stored "+c.Noun+" is not accepted", "name", name, "error", e.broken)
		}
		c.entries[name] = e
	}
	for _, name := range names {
		if x := (Change[T]{name, before[name].item(), c.entries[name].item()}); x.Before != nil || x.After != nil {
			changes = append(changes, x)
		}
	}
	c.show(names)
	return names, changes
}

// item is the entry as others see it: nil if it is not there, or not in force.
func (e entry[T]) item() *Item[T] {
	if e.Revision == 0 || e.broken != nil {
		return nil
	}
	return &e.Item
}

// tell publishes what became of an item.
func (c *Collection[T]) tell(x Change[T]) {
	attrs := map[string]any{"name": x.Name}
	verb := "removed"
	if x.After != nil {
		attrs[c.Noun] = c.Tell(x.After.Value)
		verb = "added"
		if x.Before != nil {
			verb = "changed"
		}
	}
	c.Publish(c.Event+"."+verb, attrs)
}

package subflow

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/store"
)

const storePrefix = "qos/subflows/"

// maxAtOnce is how many subflows are changed at once.
const maxAtOnce = 64

// each calls f for every item, for maxAtOnce at once, and returns when all calls have.
func each[T any](items []T, f func(T)) { tasks.Each(items, maxAtOnce, f) }

// save stores where a subflow goes. f.changing is locked.
func (c *placer) save(f *subflow) {
	f.mu.Lock()
	r, held := f.stored, f.held
	f.mu.Unlock()
	r.Meters = c.Guard.Stored(held)
	ctx, cancel := c.cleanUp()
	defer cancel()
	if err := store.PutJSON(ctx, c.Store, storePrefix+f.id, r); err != nil {
		c.failures.Warn(c.Log, "a subflow is not stored: a restart would forget its path", "subflow", f.Header, "error", err)
	}
}

// load reads the subflows of before the start.
func (c *placer) load(ctx context.Context) error {
	entries, err := c.Store.List(ctx, storePrefix)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f := &subflow{id: strings.TrimPrefix(e.Key, storePrefix), placed: true}
		if err := json.Unmarshal(e.Value, &f.stored); err != nil {
			return fmt.Errorf("stored subflow %s: %w", e.Key, err)
		}
		if len(f.Hops) == 0 || f.id != identify(f.Header) {
			return fmt.Errorf("stored subflow %s: a path of %d switches, of %v", e.Key, len(f.Hops), f.Header)
		}
		c.flows.mu.Lock()
		c.flows.add(f)
		c.flows.mu.Unlock()
		c.loads.enter(f.Hops)
		c.yield(f, f.Hops)
		c.Guard.Revive(ctx, f.Meters)
		for _, m := range f.Meters {
			f.held = append(f.held, m.Link)
		}
	}
	return nil
}

// redeclare declares the rules of subflows of before the start. Switches that are not
// connected yet are compared with them when they come, and keep what they have.
func (c *placer) redeclare(ctx context.Context) {
	each(c.flows.all(), func(f *subflow) {
		f.changing.Lock()
		defer f.changing.Unlock()
		if hops, held := f.where(); hops != nil {
			if err := c.install(ctx, f, hops, held, true); err != nil {
				c.failures.Warn(c.Log, "a subflow of before the start is not declared", "subflow", f.Header, "error", err)
			}
		}
	})
}

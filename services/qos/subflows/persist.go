package subflows

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/store"
)

const storePrefix = "qos/subflows/"

// maxAtOnce bounds the subflows that are changed at once.
const maxAtOnce = 64

// each calls f for every item, for at most maxAtOnce concurrently, and returns when all
// calls have returned.
func each[T any](items []T, f func(T)) { tasks.Each(items, maxAtOnce, f) }

// save stores the path of a subflow. f.changing is locked.
func (c *placer) save(f *subflow) {
	f.mu.Lock()
	r, held := f.stored, f.metered
	f.mu.Unlock()
	r.Meters = c.Guard.Stored(held)
	ctx, cancel := c.cleanUp()
	defer cancel()
	if err := store.PutJSON(ctx, c.Store, storePrefix+f.id, r); err != nil {
		c.warnLimit.Warn(c.Log, "a subflow is not stored: a restart would forget its path", "subflow", f.Header, "error", err)
	}
}

// load reads the subflows of an earlier controller.
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
		c.chooser.flows.mu.Lock()
		c.chooser.flows.add(f)
		c.chooser.flows.mu.Unlock()
		c.chooser.loads.add(f.Hops)
		c.chooser.bookYielding(f, f.Hops)
		c.Guard.Restore(ctx, f.Meters)
		for _, m := range f.Meters {
			f.metered = append(f.metered, m.Link)
		}
	}
	return nil
}

// redeclare declares the rules of an earlier controller's subflows. Switches that are not
// connected yet are compared with these rules when they connect, and keep what they have.
func (c *placer) redeclare(ctx context.Context) {
	each(c.chooser.flows.all(), func(f *subflow) {
		f.changing.Lock()
		defer f.changing.Unlock()
		if hops, held := f.pathAndMeters(); hops != nil {
			if err := c.install(ctx, f, hops, held, true); err != nil {
				c.warnLimit.Warn(c.Log, "a subflow of before the start is not declared", "subflow", f.Header, "error", err)
			}
		}
	})
}

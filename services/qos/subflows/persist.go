package subflows

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/internal/tasks"
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
	if err := c.records.Put(ctx, f.id, r); err != nil {
		c.warnLimit.Warn(c.Log, "a subflow is not stored: a restart would forget its path", "subflow", f.Header, "error", err)
	}
}

// load reads the subflows of an earlier controller.
func (c *placer) load(ctx context.Context) error {
	return c.records.Load(ctx, func(id string, r stored) error {
		f := &subflow{id: id, placed: true, stored: r}
		if len(f.Hops) == 0 || f.id != identify(f.Header) {
			return fmt.Errorf("a path of %d switches, of %v", len(f.Hops), f.Header)
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
		return nil
	})
}

// redeclare declares the rules of an earlier controller's subflows. A switch that is not connected
// yet is compared with these rules when it connects, and keeps the rules that it still has.
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

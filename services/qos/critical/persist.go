package critical

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/kit"
)

const flowPrefix = "qos/flows/"

// save stores a flow's placement. f.changing is locked.
func (c *placer) save(f *flow) {
	f.mu.Lock()
	r := f.stored
	f.mu.Unlock()
	if r.State == StateBestEffort {
		r.Meters = c.Guard.Stored(f.guardedLinks(r.Hops))
	}
	ctx, cancel := c.cleanUp()
	defer cancel()
	if err := c.records.Put(ctx, f.id, r); err != nil {
		c.Log.Warn("a placement is not stored: a restart would forget it", "flow", f.Header, "error", err)
	}
}

// load reads the stored flows, and enters their promises into the book again.
func (c *placer) load(ctx context.Context, definitions *kit.Collection[*Definition]) error {
	return c.records.Load(ctx, func(id string, r stored) error {
		_, critical := definitions.Item(r.Definition)
		switch {
		case !critical:
			return fmt.Errorf("%q is no critical traffic any more", r.Definition)
		case len(r.Hops) == 0 || r.State != StateAccepted && r.State != StateBestEffort:
			return fmt.Errorf("state %q with a path of %d switches", r.State, len(r.Hops))
		}
		c.restoreFlow(ctx, id, r)
		return nil
	})
}

// restoreFlow adds a flow that an earlier controller has stored.
func (c *placer) restoreFlow(ctx context.Context, id string, r stored) {
	f := &flow{id: id, stored: r}
	f.Meters = nil
	f.ctx, f.cancel = context.WithCancel(c.ctx)
	c.flows.mu.Lock()
	c.flows.add(f)
	c.flows.mu.Unlock()
	c.plan.restore(f, f.placement)
	c.Guard.Restore(ctx, r.Meters)
}

// redeclare declares the rules of an earlier controller's flows. A switch that is not connected yet
// is compared with these rules when it connects, and keeps the rules that it still has.
func (c *placer) redeclare(ctx context.Context) {
	each(c.flows.placed(), func(f *flow) {
		f.changing.Lock()
		defer f.changing.Unlock()
		if err := c.rules.install(ctx, f, f.status().placement, true); err != nil {
			c.Log.Warn("a flow of before the start is not declared", "flow", f.Header, "error", err)
		}
	})
}

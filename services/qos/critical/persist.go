package critical

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/store"
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
	if err := store.PutJSON(ctx, c.Store, flowPrefix+f.id, r); err != nil {
		c.Log.Warn("a placement is not stored: a restart would forget it", "flow", f.Header, "error", err)
	}
}

// load reads placements, and makes the promises again.
func (c *placer) load(ctx context.Context, definitions *kit.Collection[*Definition]) error {
	flows, err := c.Store.List(ctx, flowPrefix)
	if err != nil {
		return err
	}
	for _, e := range flows {
		var r stored
		err := json.Unmarshal(e.Value, &r)
		_, critical := definitions.Item(r.Definition)
		switch {
		case err != nil:
		case !critical: // its rules are removed, because nobody declares them
			err = c.Store.Delete(ctx, e.Key)
		case len(r.Hops) == 0 || r.State != StateAccepted && r.State != StateBestEffort:
			err = fmt.Errorf("state %q with a path of %d switches", r.State, len(r.Hops))
		default:
			c.restoreFlow(ctx, strings.TrimPrefix(e.Key, flowPrefix), r)
		}
		if err != nil {
			return fmt.Errorf("stored flow %s: %w", e.Key, err)
		}
	}
	return nil
}

// restoreFlow adds a flow of an earlier controller.
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

// redeclare declares the rules of an earlier controller's flows. Switches that are not
// connected yet are compared with these rules when they connect, and keep what they have.
func (c *placer) redeclare(ctx context.Context) {
	each(c.flows.placed(), func(f *flow) {
		f.changing.Lock()
		defer f.changing.Unlock()
		if err := c.rules.install(ctx, f, f.status().placement, true); err != nil {
			c.Log.Warn("a flow of before the start is not declared", "flow", f.Header, "error", err)
		}
	})
}

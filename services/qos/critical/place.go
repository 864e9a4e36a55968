package critical

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
)

// placer changes the paths of flows: their promises, their rules and their records in the store.
type placer struct {
	Options
	plan    *planner
	rules   *writer
	flows   *table
	metrics *metrics
	records kit.Records[stored]
	ctx     context.Context // ends with the service
}

// place finds a path for a new flow. The caller has locked f.changing.
func (c *placer) place(f *flow) {
	defer f.changing.Unlock()
	ctx, cancel := context.WithTimeout(f.ctx, placeTimeout)
	defer cancel()
	var p placement
	err := c.plan.locate(ctx, f)
	if err == nil {
		p, err = c.plan.choose(f)
	}
	if err == nil {
		err = c.rules.install(ctx, f, p, false)
	}
	if err == nil {
		err = context.Cause(f.ctx)
	}
	if err != nil {
		c.giveUp(f, err)
		return
	}
	waiting := f.setPlacement(p)
	c.flows.donePlacing()
	for _, held := range waiting {
		if err := held.Release(); err != nil {
			c.Log.Warn("releasing a first packet", "flow", f.Header, "error", err)
		}
	}
	c.metrics.placed(p.State, time.Since(f.Since))
	c.Publish("flow."+string(p.State), f.record())
	c.save(f)
}

// giveUp leaves a flow that cannot be placed to default forwarding.
func (c *placer) giveUp(f *flow, why error) {
	c.Book.Release(f.promiseKey())
	ctx, cancel := c.cleanUp()
	defer cancel()
	c.rules.remove(ctx, f)
	f.mu.Lock()
	f.ended = true
	waiting := f.waiting
	f.mu.Unlock()
	c.flows.remove(f)
	c.flows.donePlacing()
	for _, held := range waiting {
		if err := held.Forward(); err != nil {
			c.Log.Warn("forwarding a first packet", "flow", f.Header, "error", err)
		}
	}
	c.metrics.outcomes.WithLabelValues("failed").Inc()
	c.Log.Warn("a critical flow goes by default forwarding", "flow", f.Header, "error", why)
	c.Publish("flow.failed", map[string]any{"id": f.id, "definition": f.Definition, "flow": f.Header.String(), "reason": why.Error()})
}

// cleanUp returns a context for cleaning up. It is not cancelled when the flow or the service ends.
func (c *placer) cleanUp() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.ctx), placeTimeout)
}

// move gives a flow another path: it writes the new rules first, and deletes the old ones
// after the new ones have been confirmed. The book holds the new promise already.
// f.changing is locked.
func (c *placer) move(ctx context.Context, f *flow, p placement, why string) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	old := f.status().placement
	if err := c.rules.install(ctx, f, p, true); err != nil {
		c.plan.restore(f, old)
		c.Log.Warn("a flow could not be moved", "flow", f.Header, "error", err)
		return
	}
	f.setPlacement(p)
	c.Guard.Adjust(ctx, f.guardedLinks(old.Hops))
	if !slices.Equal(old.Hops, p.Hops) {
		c.metrics.moves.WithLabelValues().Observe(time.Since(begin).Seconds())
	}
	c.Log.Info("a flow has been moved", "flow", f.Header, "because", why, "state", p.State, "took", time.Since(begin))
	r := f.record()
	c.Publish("flow.moved", map[string]any{"cause": why, "took": time.Since(begin).Seconds(), "flow": r})
	if old.State == StateAccepted && p.State == StateBestEffort {
		c.Publish("flow.degraded", map[string]any{"flow": r, "reason": p.Reason})
	}
	c.save(f)
}

// repair chooses a path for a flow whose path is broken. It returns a function that moves the flow
// there, or ends it if there is no path. f.changing is locked, and the returned function unlocks
// it.
func (c *placer) repair(ctx context.Context, f *flow) func() {
	why := c.plan.broken(f, time.Now())
	if why == "" || f.status().ended { // the flow has changed meanwhile
		return f.changing.Unlock
	}
	p, err := c.plan.choose(f)
	return func() {
		if err != nil {
			f.changing.Unlock()
			c.end(f, why+", and there is no other path")
			return
		}
		defer f.changing.Unlock()
		c.move(ctx, f, p, why)
	}
}

// displace moves a flow whose promise no longer fits because a link of its path has lost capacity.
// If no other path has enough, nothing is promised to the flow any more. It reports whether the
// promise did not fit.
func (c *placer) displace(ctx context.Context, f *flow) bool {
	if c.Book.Overbooked(f.promiseKey()) == nil {
		return false
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	short := c.Book.Overbooked(f.promiseKey())
	if now := f.status(); short == nil || now.ended || now.State != StateAccepted {
		return true // the flow has changed meanwhile
	}
	if p, err := c.plan.choose(f); err == nil {
		c.move(ctx, f, p, fmt.Sprintf("its promise does not fit any more: %v", short))
	}
	return true
}

// upgrade moves a flow to a path with enough capacity, if there is one, and reports whether it did.
func (c *placer) upgrade(ctx context.Context, f *flow, why string) bool {
	f.changing.Lock()
	defer f.changing.Unlock()
	now := f.status()
	if now.ended || now.closed {
		return false
	}
	hops, err := now.Hops, error(nil)
	if now.State == StateAccepted || !c.plan.keepPath(f, hops) {
		hops, err = c.plan.accept(f, false)
	}
	if err != nil && now.waits {
		f.setRefusal(err)
	}
	if err != nil || now.State == StateAccepted && slices.Equal(hops, now.Hops) {
		return false
	}
	c.move(ctx, f, placement{State: StateAccepted, Hops: hops}, why)
	return true
}

// releasePromise releases the promise of a flow whose connection was closed. The flow's rules stay
// until it has been silent: the last segments are still in flight, and must not make the controller
// place the flow anew.
func (c *placer) releasePromise(f *flow) {
	f.changing.Lock()
	defer f.changing.Unlock()
	now := f.status()
	if now.ended || now.State != StateAccepted || !now.closed {
		return
	}
	// Traffic of the flow that is still measured belongs to no promise, so its bandwidth is
	// available for others.
	c.plan.restore(f, placement{State: StateBestEffort, Hops: now.Hops})
	ctx, cancel := c.cleanUp()
	defer cancel()
	c.Guard.Adjust(ctx, f.guardedLinks(now.Hops))
}

// reopen decides again about a flow whose connection was closed and has been opened again.
func (c *placer) reopen(f *flow) {
	f.changing.Lock()
	defer f.changing.Unlock()
	ctx, cancel := c.cleanUp()
	defer cancel()
	if f.status().ended {
		return
	}
	if p, err := c.plan.choose(f); err == nil {
		c.move(ctx, f, p, "its connection has been opened again")
	}
}

// end removes a flow with its rules, its promise and its record. why is the reason in the event.
func (c *placer) end(f *flow, why string) {
	f.cancel()
	f.changing.Lock()
	defer f.changing.Unlock()
	if !f.markEnded() {
		return
	}
	r := f.record()
	ctx, cancel := c.cleanUp()
	defer cancel()
	c.rules.remove(ctx, f)
	c.Book.Release(f.promiseKey())
	c.Guard.Adjust(ctx, f.guardedLinks(f.Hops))
	if err := c.records.Delete(ctx, f.id); err != nil {
		c.Log.Warn("a placement stays stored", "flow", f.Header, "error", err)
	}
	c.flows.remove(f) // only now may a packet start the flow anew, under the same keys
	r.Reason = why
	c.Publish("flow.ended", r)
}

package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/store"
)

// placer changes where flows are: what is promised to them, their rules, and what is stored
// of them.
type placer struct {
	Options
	plan    *planner
	rules   *writer
	flows   *table
	metrics *metrics
	ctx     context.Context // that of the service
}

// place finds a new flow its place. The caller has locked f.changing.
func (c *placer) place(f *flow) {
	defer f.changing.Unlock()
	ctx, cancel := context.WithTimeout(f.ctx, placeFor)
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
	waiting := f.enter(p)
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

// giveUp lets a flow that cannot be placed go by default forwarding.
func (c *placer) giveUp(f *flow, why error) {
	c.Book.Release(f.promise())
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

// cleanUp is the time for putting things in order, which the end of a flow, or of the
// service, does not cut short.
func (c *placer) cleanUp() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.ctx), placeFor)
}

// move brings a flow to a new place: what is to be written first, what is to be deleted
// after it has been confirmed. The promise stands in the book already. f.changing is locked.
func (c *placer) move(ctx context.Context, f *flow, p placement, why string) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, placeFor)
	defer cancel()
	old := f.now().placement
	if err := c.rules.install(ctx, f, p, true); err != nil {
		c.plan.restore(f, old)
		c.Log.Warn("a flow could not be moved", "flow", f.Header, "error", err)
		return
	}
	f.enter(p)
	c.Guard.Adjust(ctx, f.guarded(old.Hops))
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

// repair chooses a place for a flow whose path has broken. What is left to be done is
// returned. f.changing is locked, and open again when that has been done.
func (c *placer) repair(ctx context.Context, f *flow) func() {
	why := c.plan.broken(f, time.Now())
	if why == "" || f.now().ended { // changed meanwhile
		return f.changing.Unlock
	}
	p, err := c.plan.choose(f)
	return func() {
		if err != nil {
			f.changing.Unlock()
			c.end(f, why+", and there is no other way")
			return
		}
		defer f.changing.Unlock()
		c.move(ctx, f, p, why)
	}
}

// displace moves a flow whose promise does not fit any more, because a link of its path
// has less capacity than when it was made. Where no other path has enough nothing is
// promised to it any more. It says whether there was something to be done.
func (c *placer) displace(ctx context.Context, f *flow) bool {
	if c.Book.Overbooked(f.promise()) == nil {
		return false
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	short := c.Book.Overbooked(f.promise())
	if now := f.now(); short == nil || now.ended || now.State != StateAccepted {
		return true // changed meanwhile
	}
	if p, err := c.plan.choose(f); err == nil {
		c.move(ctx, f, p, fmt.Sprintf("its promise does not fit any more: %v", short))
	}
	return true
}

// upgrade gives a flow a path with enough available, if there is one.
func (c *placer) upgrade(ctx context.Context, f *flow, why string) bool {
	f.changing.Lock()
	defer f.changing.Unlock()
	now := f.now()
	if now.ended || now.closed {
		return false
	}
	hops, err := now.Hops, error(nil)
	if now.State == StateAccepted || !c.plan.stays(f, hops) {
		hops, err = c.plan.accept(f, false)
	}
	if err != nil && now.waits {
		f.refused(err)
	}
	if err != nil || now.State == StateAccepted && slices.Equal(hops, now.Hops) {
		return false
	}
	c.move(ctx, f, placement{State: StateAccepted, Hops: hops}, why)
	return true
}

// giveBack takes back what a flow was promised whose connection has been closed. Its
// rules stay until it has been silent: the last segments are still on their way, and
// must not begin it anew.
func (c *placer) giveBack(f *flow) {
	f.changing.Lock()
	defer f.changing.Unlock()
	now := f.now()
	if now.ended || now.State != StateAccepted || !now.closed {
		return
	}
	// What is still measured of it is nobody's, and free for others.
	c.plan.restore(f, placement{State: StateBestEffort, Hops: now.Hops})
	ctx, cancel := c.cleanUp()
	defer cancel()
	c.Guard.Adjust(ctx, f.guarded(now.Hops))
}

// reopen decides anew about a flow whose connection was closed and is opened again.
func (c *placer) reopen(f *flow) {
	f.changing.Lock()
	defer f.changing.Unlock()
	ctx, cancel := c.cleanUp()
	defer cancel()
	if f.now().ended {
		return
	}
	if p, err := c.plan.choose(f); err == nil {
		c.move(ctx, f, p, "its connection has been opened again")
	}
}

// end takes a flow out: its rules, its promise, its record.
func (c *placer) end(f *flow, why string) {
	f.cancel()
	f.changing.Lock()
	defer f.changing.Unlock()
	if !f.end() {
		return
	}
	r := f.record()
	ctx, cancel := c.cleanUp()
	defer cancel()
	c.rules.remove(ctx, f)
	c.Book.Release(f.promise())
	c.Guard.Adjust(ctx, f.guarded(f.Hops))
	if err := c.Store.Delete(ctx, flowPrefix+f.id); err != nil && !errors.Is(err, store.ErrNotFound) {
		c.Log.Warn("a placement stays stored", "flow", f.Header, "error", err)
	}
	c.flows.remove(f) // only now may a packet begin the flow anew, under the same names
	r.Reason = why
	c.Publish("flow.ended", r)
}

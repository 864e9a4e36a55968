package classes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
)

// placer installs classes in the switches, moves them and removes them.
type placer struct {
	Options
	classes *table
	plan    *planner
	queues  *queues
	records kit.Records[record]
}

// workTimeout bounds the work on one class.
const workTimeout = 10 * time.Second

// withLock calls do while nobody else works on the class, if the class still exists.
func (c *placer) withLock(ctx context.Context, e *entry, do func(context.Context)) {
	e.work.Lock()
	defer e.work.Unlock()
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	if c.classes.get(e.class.Name) == e {
		do(ctx)
	}
}

// place sets the routes of a class, and finds the mark that it needs on userspace datapaths. The
// class keeps the queues on its former routes until its rules have been removed from them.
func (c *placer) place(ctx context.Context, e *entry, routes []Route) error {
	userspace := map[openflow.DatapathID]bool{}
	any := false
	for _, d := range switchesOf(routes) {
		var err error
		if userspace[d], err = c.queues.userspace(ctx, d); err != nil {
			return err
		}
		any = any || userspace[d]
	}
	c.classes.mu.Lock()
	defer c.classes.mu.Unlock()
	leaving := e.held()
	for d, inUserspace := range e.userspace {
		if _, stays := userspace[d]; !stays {
			userspace[d] = inUserspace
		}
	}
	var mark, own uint8
	if any || slices.ContainsFunc(e.carriage.portList(), func(at place) bool { return userspace[at.Switch] }) {
		var err error
		if own, err = ownDSCP(&e.class); err != nil {
			return err
		}
		if mark, err = c.classes.freeMark(e, append(portsOf(routes), leaving...)); err != nil {
			return err
		}
	}
	e.placement, e.leaving = placement{routes: routes, userspace: userspace, mark: mark, own: own}, leaving
	return nil
}

// install installs a placed class in the switches: first the queues everywhere, then the rules,
// from the far end.
func (c *placer) install(ctx context.Context, e *entry) error {
	c.classes.mu.Lock()
	ports := portsOf(e.routes)
	p := program(&e.class, e.routes, e.queue, e.own, maps.Clone(e.userspace))
	c.classes.mu.Unlock()
	if err := c.queues.ensure(ctx, bySwitch(ports)); err != nil {
		if errors.Is(err, ovsdb.ErrForeign) {
			return &Refusal{"flows", e.class.Name, err.Error()}
		}
		return err
	}
	err := c.Rules.Apply(ctx, ruleKey(e.class.Name), p, network.ApplyOptions{Ordered: true})
	switch {
	case err == nil:
		c.Critical.GiveWay(e.class.matches(), "the class "+e.class.Name)
	case errors.Is(err, network.ErrConflict):
		return &Refusal{"flows", e.class.Name, fmt.Sprintf("another class of this priority has the same flow: %v", err)}
	case errors.Is(err, network.ErrInvalid):
		return &Refusal{"flows", e.class.Name, fmt.Sprintf("two of its flows are the same at a switch where they part: %v", err)}
	}
	return err
}

// remove removes a class completely. If its record or rules cannot be removed now, it returns
// ErrCleanupPending, and the removal is retried later; the name stays reserved until then. e.work
// is held.
func (c *placer) remove(ctx context.Context, e *entry) error {
	err := c.erase(ctx, e.class.Name)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrCleanupPending, err)
	}
	c.Book.Release(bookKey(e.class.Name))
	c.Book.Release(carriedKey(e.class.Name))
	c.classes.mu.Lock()
	ports := e.held()
	delete(c.classes.byName, e.class.Name)
	c.classes.reindex()
	if err != nil {
		c.classes.cleanups[e.class.Name] = true
	}
	c.classes.mu.Unlock()
	c.Treatments.Changed()
	c.classes.removeOverlaps(e.class.Name)
	// Disconnected switches lose the class's queues when they connect again. At ports that another
	// program has configured, the class has no queue.
	switches, up := map[openflow.DatapathID][]uint32{}, c.Network.Datapaths()
	for _, p := range ports {
		if slices.Contains(up, p.Switch) {
			switches[p.Switch] = nil
		}
	}
	return errors.Join(err, c.queues.ensure(ctx, switches))
}

// retryCleanups tries again to remove the records and rules of deleted classes.
func (c *placer) retryCleanups(ctx context.Context) {
	c.classes.mu.Lock()
	names := slices.Sorted(maps.Keys(c.classes.cleanups))
	c.classes.mu.Unlock()
	for _, name := range names {
		bounded, cancel := context.WithTimeout(ctx, workTimeout)
		err := c.erase(bounded, name)
		cancel()
		if err == nil {
			c.classes.mu.Lock()
			delete(c.classes.cleanups, name)
			c.classes.mu.Unlock()
		}
	}
}

// replace moves a class to other routes: first the queues, then the rules. The old queues are
// removed when no rule uses them.
func (c *placer) replace(ctx context.Context, e *entry) {
	c.withLock(ctx, e, func(ctx context.Context) { c.finishMove(ctx, e, c.move(ctx, e)) })
}

// finishMove updates a class after an attempt to move it, whose error is err. e.work is held.
func (c *placer) finishMove(ctx context.Context, e *entry, err error) {
	c.classes.mu.Lock()
	first := err == nil && e.accepted.IsZero()
	if first {
		e.accepted = time.Now().UTC()
	}
	placed := e.routes != nil
	c.classes.mu.Unlock()
	switch {
	case err == nil:
		err = c.save(ctx, e)
	case placed:
		c.plan.suspendRate(e)
	default: // its rules belong to an earlier form of the class, or there are none
		c.Book.Release(bookKey(e.class.Name))
		err = errors.Join(err, c.Rules.Remove(ctx, ruleKey(e.class.Name)))
	}
	c.classes.mu.Lock()
	changed := e.setMoveResult(err)
	left := e.leaving
	e.leaving = nil
	c.classes.mu.Unlock()
	c.plan.promiseCarried(e) // ports on the class's own new routes need no second promise
	switch {
	case err == nil && first:
		c.Publish("class.accepted", e.acceptedEvent())
	case err == nil:
		c.Publish("class.moved", map[string]any{"class": e.class.Name, "switches": fmt.Sprint(switchesOf(e.routes))})
	case changed:
		c.Publish("class.degraded", map[string]any{"class": e.class.Name, "reason": err.Error()})
	}
	if queueErr := c.queues.ensure(ctx, bySwitch(left)); queueErr != nil && err == nil {
		c.Log.Warn("queues of a former route could not be removed", "class", e.class.Name, "error", queueErr)
	}
}

// move moves a class to other routes. If that fails, the class keeps its rules, its promise
// and its queues.
func (c *placer) move(ctx context.Context, e *entry) error {
	c.classes.mu.Lock()
	before := e.placement
	c.classes.mu.Unlock()
	routes, err := c.plan.choose(ctx, e)
	if err != nil {
		return err
	}
	if err = c.place(ctx, e, routes); err == nil {
		if err = c.install(ctx, e); err == nil {
			return nil
		}
	}
	c.classes.mu.Lock()
	tried := portsOf(e.routes)
	e.placement = before
	e.leaving = append(e.leaving, tried...)
	c.classes.mu.Unlock()
	c.plan.restore(e)
	return err
}

package latency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
)

// placer brings classes into the switches, moves them and takes them out.
type placer struct {
	Options
	classes *table
	plan    *planner
	queues  *queues
}

// timeout bounds the work on one class.
const timeout = 10 * time.Second

// work does something about a class that is there, when nobody else does.
func (c *placer) work(ctx context.Context, e *entry, do func(context.Context)) {
	e.work.Lock()
	defer e.work.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if c.classes.get(e.class.Name) == e {
		do(ctx)
	}
}

// place gives a class its routes, and finds the mark that it needs on userspace
// datapaths. Where it was before it keeps its queues until its rules have left.
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
	for d, is := range e.userspace {
		if _, stays := userspace[d]; !stays {
			userspace[d] = is
		}
	}
	var mark, own uint8
	if any || slices.ContainsFunc(e.carriage.held(), func(at place) bool { return userspace[at.Switch] }) {
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

// install brings a placed class into the switches: first queues everywhere, then rules,
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

// remove takes a class out of everything. What cannot be removed now is tried again, and the
// error says so; the name is not free until then. e.work is held.
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
		c.classes.left[e.class.Name] = true
	}
	c.classes.mu.Unlock()
	c.Treatments.Changed()
	c.classes.forget(e.class.Name)
	// Switches that are away lose the class's queues when they come back. At ports that
	// somebody else has configured it has none.
	switches, up := map[openflow.DatapathID][]uint32{}, c.Network.Datapaths()
	for _, p := range ports {
		if slices.Contains(up, p.Switch) {
			switches[p.Switch] = nil
		}
	}
	return errors.Join(err, c.queues.ensure(ctx, switches))
}

// removeLeft tries again to remove what is left of classes that are not there any more.
func (c *placer) removeLeft(ctx context.Context) {
	c.classes.mu.Lock()
	names := slices.Sorted(maps.Keys(c.classes.left))
	c.classes.mu.Unlock()
	for _, name := range names {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		err := c.erase(bounded, name)
		cancel()
		if err == nil {
			c.classes.mu.Lock()
			delete(c.classes.left, name)
			c.classes.mu.Unlock()
		}
	}
}

// replace moves a class to another way: queues first, then rules, and the old queues
// go when nothing uses them.
func (c *placer) replace(ctx context.Context, e *entry) {
	c.work(ctx, e, func(ctx context.Context) { c.settle(ctx, e, c.move(ctx, e)) })
}

// settle does what follows from an attempt to move a class. e.work is held.
func (c *placer) settle(ctx context.Context, e *entry, err error) {
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
		c.plan.yield(e)
	default: // its rules are of another form of it, or of none
		c.Book.Release(bookKey(e.class.Name))
		err = errors.Join(err, c.Rules.Remove(ctx, ruleKey(e.class.Name)))
	}
	c.classes.mu.Lock()
	changed := e.follow(err)
	left := e.leaving
	e.leaving = nil
	c.classes.mu.Unlock()
	c.plan.promiseCarried(e) // where it goes by itself now it needs no second promise
	switch {
	case err == nil && first:
		c.Publish("class.accepted", e.accepting())
	case err == nil:
		c.Publish("class.moved", map[string]any{"class": e.class.Name, "switches": fmt.Sprint(switchesOf(e.routes))})
	case changed:
		c.Publish("class.degraded", map[string]any{"class": e.class.Name, "reason": err.Error()})
	}
	if queueErr := c.queues.ensure(ctx, bySwitch(left)); queueErr != nil && err == nil {
		c.Log.Warn("queues of a way that is left", "class", e.class.Name, "error", queueErr)
	}
}

// move brings a class to another way. If that fails, its rules are those of the way that
// it had, and so are its promise and its queues.
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

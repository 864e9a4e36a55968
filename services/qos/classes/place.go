package classes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
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

// record is the stored state of an installed class. It is enough to declare the class's queues and
// rules again at once after a restart, before the network has been discovered.
type record struct {
	Spec      ClassSpec             `json:"spec"`
	Queue     uint32                `json:"queue"`
	Mark      uint8                 `json:"mark"`
	Routes    []Route               `json:"routes"`
	Userspace []openflow.DatapathID `json:"userspace"`
	Accepted  time.Time             `json:"accepted"`
	// Carried lists the ports at which the class has its queue for connections that other services
	// carry. Between lists those of them where packets on their way between two carriers pass,
	// which have DSCP.
	Carried []place `json:"carried,omitempty"`
	Between []place `json:"between,omitempty"`
	DSCP    uint8   `json:"dscp,omitempty"`
}

const placementPrefix = "qos/placement/"

// save stores the placement and the carriage of a class.
func (c *placer) save(ctx context.Context, e *entry) error {
	c.classes.mu.Lock()
	r := record{Spec: e.class.Spec, Queue: e.queue, Mark: e.mark, Routes: e.routes, Accepted: e.accepted, DSCP: e.carriage.dscp}
	for _, at := range e.carriage.portList() {
		r.Carried = append(r.Carried, at)
		if e.carriage.ports[at].between {
			r.Between = append(r.Between, at)
		}
	}
	for d, inUserspace := range e.userspace {
		if inUserspace {
			r.Userspace = append(r.Userspace, d)
		}
	}
	c.classes.mu.Unlock()
	return c.records.Put(ctx, e.class.Name, r)
}

// erase removes a class's record from the store, and then its rules from the switches. In this
// order, the next controller does not restore the class after a crash in between.
func (c *placer) erase(ctx context.Context, name string) error {
	return errors.Join(c.records.Delete(ctx, name), c.Rules.Remove(ctx, ruleKey(name)))
}

// load restores the classes that were installed before a restart. The switches still have their
// rules and queues. Classes that are not declared any more are marked for cleanup.
func (s *Service) load(ctx context.Context) error {
	if err := s.Declared.Load(ctx, s.Configured); err != nil {
		return err
	}
	placed := map[string]*record{}
	if err := s.placer.records.Load(ctx, func(name string, r record) error { placed[name] = &r; return nil }); err != nil {
		return err
	}
	for _, x := range s.Declared.Items() {
		r := placed[x.Name]
		delete(placed, x.Name)
		if r == nil || !reflect.DeepEqual(r.Spec, x.Value.Spec) {
			s.classes.byName[x.Name] = newEntry(*x.Value, s.classes.freeQueue())
			continue
		}
		if err := s.placer.restore(ctx, x.Value, r); err != nil {
			s.Log.Error("a class of the store", "class", x.Name, "error", err)
		}
	}
	s.classes.mu.Lock()
	for name := range placed {
		s.classes.cleanups[name] = true
	}
	s.classes.reindex()
	s.classes.mu.Unlock()
	s.Rules.Ready()
	return nil
}

// restore restores a class as it was before a restart.
func (c *placer) restore(ctx context.Context, class *Class, r *record) error {
	e := newEntry(*class, r.Queue)
	e.mark, e.routes, e.accepted, e.state, e.reason = r.Mark, r.Routes, r.Accepted, StateActive, ""
	for _, d := range r.Userspace {
		e.userspace[d] = true
	}
	e.own, _ = ownDSCP(class) // no error: the class was accepted
	e.carriage = carriage{dscp: r.DSCP, restored: len(r.Carried) > 0}
	if r.DSCP != 0 || e.carriage.restored {
		e.carriage.asked = time.Now()
	}
	for _, at := range r.Carried {
		e.carriage.markUsed(network.Carried{At: at, Between: slices.Contains(r.Between, at)}, time.Now())
		e.carriage.ports[at].ready = true // its queue still exists
	}
	c.classes.mu.Lock()
	c.classes.byName[class.Name] = e
	c.classes.mu.Unlock()
	c.classes.updateOverlaps(e)
	c.plan.restore(e)
	if p := c.plan.carriedPromise(e); len(p.Shares) > 0 {
		c.Book.Restore(p)
	}
	err := c.Rules.Apply(ctx, ruleKey(class.Name), program(&e.class, e.routes, e.queue, e.own, e.userspace), network.ApplyOptions{AllowDown: true})
	if err != nil { // the class will be placed again
		c.classes.mu.Lock()
		e.state, e.reason = StateDegraded, err.Error()
		c.classes.mu.Unlock()
	}
	return err
}

package classes

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

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

func ruleKey(name string) string { return "class/" + name }

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

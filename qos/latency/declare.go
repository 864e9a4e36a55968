package latency

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/service"
)

// collect returns the collection of the classes.
func collect(s *Service, o Options) *service.Collection[*Class] {
	return service.NewCollection(service.Options[*Class]{
		Kind: service.Kind[*Class]{
			Noun: "class", Nouns: "classes of traffic", Prefix: "qos/class/", Event: "class", Most: MaxClasses,
			Encode: func(c *Class) any { return c.Spec },
			Decode: func(b []byte) (*Class, error) {
				var spec ClassSpec
				if err := json.Unmarshal(b, &spec); err != nil {
					return nil, err
				}
				c, faults := spec.Parse()
				return &c, faults.Err()
			},
		},
		Store: o.Store, Log: s.log,
		Publish: func(kind string, attrs any) {
			if s.bus != nil {
				s.bus.Publish("qos."+kind, attrs)
			}
		},
		Changed: func(ctx context.Context, changes []service.Change[*Class]) {
			tasks.Each(changes, movers, func(c service.Change[*Class]) { s.reconcile(ctx, c.Name) })
		},
	})
}

// reconcileAll is reconcile of all classes that are declared or there.
func (s *Service) reconcileAll(ctx context.Context) {
	names := map[string]bool{}
	for _, x := range s.Declared.Items() {
		names[x.Name] = true
	}
	s.mu.Lock()
	for name := range s.classes {
		names[name] = true
	}
	s.mu.Unlock()
	tasks.Each(slices.Sorted(maps.Keys(names)), movers, func(name string) { s.reconcile(ctx, name) })
}

// reconcile brings a class in step with what is declared under its name: what Add has not
// provisioned is placed, what was changed is placed anew, and what was withdrawn is taken
// away. ctx is to end with the service.
func (s *Service) reconcile(ctx context.Context, name string) {
	x, declared := s.Declared.Item(name)
	if ctx.Err() != nil {
		return // at the end there are no items any more
	}
	s.mu.Lock()
	e, cleanup := s.classes[name], s.left[name]
	provisioning := e != nil && e.state == StateProvisioning
	s.mu.Unlock()
	switch {
	case provisioning: // Add looks again when it is over
	case !declared && e != nil:
		s.take(ctx, e)
	case declared && e == nil && !cleanup:
		s.putIn(ctx, nil, *x.Value)
	case declared && e != nil && !reflect.DeepEqual(e.class.Spec, x.Value.Spec):
		s.putIn(ctx, e, *x.Value)
	}
}

// take takes a class out of the network that was withdrawn. What cannot be removed now is
// tried again.
func (s *Service) take(ctx context.Context, e *entry) {
	ctx, end := e.begin(ctx, s.settings.Timeout)
	defer end()
	if !s.has(e) {
		return
	}
	erased := s.erase(ctx, e.class.Name)
	if err := errors.Join(erased, s.uninstall(ctx, e, erased != nil)); err != nil {
		s.log.Warn("a class was withdrawn, and something of it is left; it is tried again", "class", e.class.Name, "error", err)
	}
}

// putIn has a class placed that was declared, in the place of what it was before, if it was
// there. If there is no way for it, it is degraded, and tried again.
func (s *Service) putIn(ctx context.Context, was *entry, class Class) {
	if was != nil {
		was.work.Lock()
		defer was.work.Unlock()
	}
	s.mu.Lock()
	if s.classes[class.Name] != was {
		s.mu.Unlock()
		return // somebody else was first
	}
	var e *entry
	if was == nil {
		e = newEntry(class, s.freeQueue())
	} else {
		e = newEntry(class, was.queue)
		e.leaving = was.held()
	}
	s.classes[class.Name] = e
	s.reindex()
	s.mu.Unlock()
	s.forget(class.Name)
	s.replace(ctx, e)
	s.compare(e)
	s.assess(e, false) // its classifiers may not have heard of it yet
	s.treatments.Changed()
}

// Withdraw ends the provisioning of a class, which is not declared yet.
func (s *Service) Withdraw(ctx context.Context, name string) error {
	s.mu.Lock()
	e := s.classes[name]
	s.mu.Unlock()
	if e == nil {
		return service.ErrUnknown
	}
	e.withdraw(ErrWithdrawn)
	select {
	case <-e.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, declared := s.Declared.Item(name); declared { // it was over already
		return s.Declared.Remove(ctx, name, 0)
	}
	return nil
}

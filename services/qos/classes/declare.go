package classes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
)

// Add admits a class, provisions it, and declares it. If the class is refused, fails, or is
// withdrawn meanwhile, nothing of it remains.
func (s *Service) Add(ctx context.Context, class Class) (Info, error) {
	e, ctx, cancel, err := s.begin(ctx, class)
	if err != nil {
		return Info{}, err
	}
	defer s.reconcile(s.tasks.Context(), class.Name) // the class may have been declared or withdrawn meanwhile
	defer cancel()
	defer close(e.done)
	if err := s.provision(ctx, e); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		// The class may have been moved already if it was withdrawn at the very end.
		s.placer.withLock(context.WithoutCancel(s.tasks.Context()), e, func(ctx context.Context) {
			left := s.placer.remove(ctx, e)
			if left != nil {
				s.Log.Warn("a class that was not accepted", "class", e.class.Name, "error", left)
			}
			if errors.Is(left, ErrCleanupPending) {
				err = errors.Join(err, left)
			}
		})
		s.Publish("class.refused", map[string]any{"class": class.Name, "reason": err.Error()})
		return Info{}, err
	}
	s.Publish("class.accepted", e.acceptedEvent())
	s.classes.updateOverlaps(e)
	s.monitor.assess(e, true)
	return s.infos(e)[0], nil
}

// begin reserves the name of a class and starts its provisioning.
func (s *Service) begin(ctx context.Context, class Class) (*entry, context.Context, context.CancelFunc, error) {
	select {
	case <-s.loaded:
	default:
		return nil, nil, nil, ErrStarting
	}
	_, declared := s.Declared.Item(class.Name)
	s.classes.mu.Lock()
	defer s.classes.mu.Unlock()
	switch {
	case declared || s.classes.byName[class.Name] != nil:
		return nil, nil, nil, fmt.Errorf("class %q: %w", class.Name, kit.ErrExists)
	case len(s.classes.byName) >= MaxClasses:
		return nil, nil, nil, fmt.Errorf("%d classes: %w", MaxClasses, kit.ErrFull)
	case s.classes.cleanups[class.Name]:
		return nil, nil, nil, fmt.Errorf("an earlier class of that name: %w", ErrCleanupPending)
	}
	ctx, withdraw := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	e := newEntry(class, s.classes.freeQueue())
	e.state, e.reason, e.withdraw, e.done = StateProvisioning, "", withdraw, make(chan struct{})
	s.classes.byName[class.Name] = e
	return e, ctx, func() { cancel(); withdraw(nil) }, nil
}

// provision admits a class and installs it in the switches. It declares the class last: a
// class that a controller was provisioning when it was killed was not accepted, and the
// next controller removes what nobody declares.
func (s *Service) provision(ctx context.Context, e *entry) error {
	routes, err := s.plan.choose(ctx, e)
	if err != nil {
		return err
	}
	if err := s.placer.place(ctx, e, routes); err != nil {
		return err
	}
	if err := s.placer.install(ctx, e); err != nil {
		return err
	}
	s.queues.awaitMarks(ctx, e)
	s.classes.mu.Lock()
	e.accepted = time.Now().UTC()
	s.classes.mu.Unlock()
	if err := s.placer.save(ctx, e); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.Declared.Add(ctx, e.class.Name, &e.class); err != nil {
		return err
	}
	s.classes.mu.Lock()
	e.state, e.reason = StateActive, ""
	s.classes.reindex()
	s.classes.mu.Unlock()
	s.Treatments.Changed()
	return nil
}

// reconcileAll reconciles all classes that are declared or exist.
func (s *Service) reconcileAll(ctx context.Context) {
	names := map[string]bool{}
	for _, x := range s.Declared.Items() {
		names[x.Name] = true
	}
	for _, e := range s.classes.filter(all) {
		names[e.class.Name] = true
	}
	tasks.Each(slices.Sorted(maps.Keys(names)), maxMoves, func(name string) { s.reconcile(ctx, name) })
}

// reconcile makes a class match the declaration under its name. It places a declared class that Add
// has not provisioned, places a changed class anew, and removes a withdrawn one. ctx has to end
// with the service.
func (s *Service) reconcile(ctx context.Context, name string) {
	x, declared := s.Declared.Item(name)
	if ctx.Err() != nil {
		return // after the end of the service, there are no items
	}
	s.classes.mu.Lock()
	e, cleanup := s.classes.byName[name], s.classes.cleanups[name]
	provisioning := e != nil && e.state == StateProvisioning
	s.classes.mu.Unlock()
	switch {
	case provisioning: // Add reconciles again when it is done
	case !declared && e != nil:
		s.placer.withLock(ctx, e, func(ctx context.Context) {
			if err := s.placer.remove(ctx, e); err != nil {
				s.Log.Warn("a class was withdrawn, and something of it is left; it is tried again", "class", name, "error", err)
			}
		})
	case declared && e == nil && !cleanup:
		s.placeDeclared(ctx, nil, *x.Value)
	case declared && e != nil && !reflect.DeepEqual(e.class.Spec, x.Value.Spec):
		s.placeDeclared(ctx, e, *x.Value)
	}
}

// placeDeclared places a declared class. was is its earlier form, which the class replaces, or nil.
// If there is no route for the class, it becomes degraded, and is tried again later.
func (s *Service) placeDeclared(ctx context.Context, was *entry, class Class) {
	if was != nil {
		was.work.Lock()
		defer was.work.Unlock()
	}
	s.classes.mu.Lock()
	if s.classes.byName[class.Name] != was {
		s.classes.mu.Unlock()
		return // another call was first
	}
	var e *entry
	if was == nil {
		e = newEntry(class, s.classes.freeQueue())
	} else {
		e = newEntry(class, was.queue)
		e.leaving = was.held()
	}
	s.classes.byName[class.Name] = e
	s.classes.reindex()
	s.classes.mu.Unlock()
	s.classes.removeOverlaps(class.Name)
	s.placer.replace(ctx, e)
	s.classes.updateOverlaps(e)
	s.monitor.assess(e, false) // not certain: classifiers may not know the class yet
	s.Treatments.Changed()
}

// Withdraw ends the provisioning of a class that is not declared yet.
func (s *Service) Withdraw(ctx context.Context, name string) error {
	e := s.classes.get(name)
	if e == nil {
		return kit.ErrUnknown
	}
	e.withdraw(ErrWithdrawn)
	select {
	case <-e.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, declared := s.Declared.Item(name); declared { // provisioning was over already
		return s.Declared.Remove(ctx, name, 0)
	}
	return nil
}

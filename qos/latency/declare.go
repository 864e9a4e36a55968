package latency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/service"
)

// What an operation can fail with, besides a Refusal.
var (
	// ErrWithdrawn says that the class was deleted while it was being provisioned.
	ErrWithdrawn = errors.New("withdrawn before it was provisioned")
	// ErrStarting says that the classes have not been read from the store yet.
	ErrStarting = errors.New("the service is starting")
	// ErrCleanupPending says that something of a class that is not there any more could
	// not be removed yet. It is tried again until it works.
	ErrCleanupPending = errors.New("something of it is left, and is removed as soon as that can be done")
)

// Add admits a class, provisions it, and declares it. If it is refused, fails, or is
// withdrawn meanwhile, nothing of it remains.
func (s *Service) Add(ctx context.Context, class Class) (Info, error) {
	e, ctx, cancel, err := s.enter(ctx, class)
	if err != nil {
		return Info{}, err
	}
	defer s.reconcile(s.tasks.Context(), class.Name) // somebody else may have declared it, or withdrawn it
	defer cancel()
	defer close(e.done)
	if err := s.provision(ctx, e); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		// It may be moved already, if it was withdrawn at the very end.
		s.placer.work(context.WithoutCancel(s.tasks.Context()), e, func(ctx context.Context) {
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
	s.Publish("class.accepted", e.accepting())
	s.classes.compare(e)
	s.monitor.assess(e, true)
	return s.infos(e)[0], nil
}

// accepting is what is told of a class that has its queues and rules.
func (e *entry) accepting() map[string]any {
	return map[string]any{"class": e.class.Name, "queue": e.queue, "switches": len(switchesOf(e.routes))}
}

// enter takes the name.
func (s *Service) enter(ctx context.Context, class Class) (*entry, context.Context, context.CancelFunc, error) {
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
		return nil, nil, nil, fmt.Errorf("class %q: %w", class.Name, service.ErrExists)
	case len(s.classes.byName) >= MaxClasses:
		return nil, nil, nil, fmt.Errorf("%d classes: %w", MaxClasses, service.ErrFull)
	case s.classes.left[class.Name]:
		return nil, nil, nil, fmt.Errorf("an earlier class of that name: %w", ErrCleanupPending)
	}
	ctx, withdraw := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	e := newEntry(class, s.classes.freeQueue())
	e.state, e.reason, e.withdraw, e.done = StateProvisioning, "", withdraw, make(chan struct{})
	s.classes.byName[class.Name] = e
	return e, ctx, func() { cancel(); withdraw(nil) }, nil
}

// provision admits a class and brings it into the switches. It is declared last: a class
// that a controller was provisioning when it was killed has not been accepted, and the next
// one takes away what nobody declares.
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

// reconcileAll is reconcile of all classes that are declared or there.
func (s *Service) reconcileAll(ctx context.Context) {
	names := map[string]bool{}
	for _, x := range s.Declared.Items() {
		names[x.Name] = true
	}
	for _, e := range s.classes.those(all) {
		names[e.class.Name] = true
	}
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
	s.classes.mu.Lock()
	e, cleanup := s.classes.byName[name], s.classes.left[name]
	provisioning := e != nil && e.state == StateProvisioning
	s.classes.mu.Unlock()
	switch {
	case provisioning: // Add looks again when it is over
	case !declared && e != nil:
		s.placer.work(ctx, e, func(ctx context.Context) {
			if err := s.placer.remove(ctx, e); err != nil {
				s.Log.Warn("a class was withdrawn, and something of it is left; it is tried again", "class", name, "error", err)
			}
		})
	case declared && e == nil && !cleanup:
		s.putIn(ctx, nil, *x.Value)
	case declared && e != nil && !reflect.DeepEqual(e.class.Spec, x.Value.Spec):
		s.putIn(ctx, e, *x.Value)
	}
}

// putIn has a class placed that was declared, in the place of what it was before, if it was
// there. If there is no way for it, it is degraded, and tried again.
func (s *Service) putIn(ctx context.Context, was *entry, class Class) {
	if was != nil {
		was.work.Lock()
		defer was.work.Unlock()
	}
	s.classes.mu.Lock()
	if s.classes.byName[class.Name] != was {
		s.classes.mu.Unlock()
		return // somebody else was first
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
	s.classes.forget(class.Name)
	s.placer.replace(ctx, e)
	s.classes.compare(e)
	s.monitor.assess(e, false) // its classifiers may not have heard of it yet
	s.Treatments.Changed()
}

// Withdraw ends the provisioning of a class, which is not declared yet.
func (s *Service) Withdraw(ctx context.Context, name string) error {
	e := s.classes.get(name)
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

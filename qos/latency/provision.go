package latency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
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

// undoTimeout bounds the removal of what a failed or withdrawn class has left.
const undoTimeout = 10 * time.Second

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
		if left := s.undo(e); errors.Is(left, ErrCleanupPending) {
			err = errors.Join(err, left)
		}
		s.publish("refused", map[string]any{"class": class.Name, "reason": err.Error()})
		return Info{}, err
	}
	s.publish("accepted", e.accepting())
	s.compare(e)
	s.assess(e, true)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case declared || s.classes[class.Name] != nil:
		return nil, nil, nil, fmt.Errorf("class %q: %w", class.Name, service.ErrExists)
	case len(s.classes) >= MaxClasses:
		return nil, nil, nil, fmt.Errorf("%d classes: %w", MaxClasses, service.ErrFull)
	case s.left[class.Name]:
		return nil, nil, nil, fmt.Errorf("an earlier class of that name: %w", ErrCleanupPending)
	}
	ctx, withdraw := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	e := newEntry(class, s.freeQueue())
	e.state, e.reason, e.withdraw, e.done = StateProvisioning, "", withdraw, make(chan struct{})
	s.classes[class.Name] = e
	return e, ctx, func() { cancel(); withdraw(nil) }, nil
}

// freeQueue is the lowest queue number that no class has. The lock is held.
func (s *Service) freeQueue() uint32 {
	taken := map[uint32]bool{0: true}
	for _, c := range s.classes {
		taken[c.queue] = true
	}
	n := uint32(1)
	for taken[n] {
		n++
	}
	return n
}

// provision admits a class and brings it into the switches: first queues everywhere,
// then rules, from the far end. It is declared last: a class that a controller was
// provisioning when it was killed has not been accepted, and the next one takes away what
// nobody declares.
func (s *Service) provision(ctx context.Context, e *entry) error {
	routes, err := s.choose(ctx, &e.class)
	if err != nil {
		return err
	}
	if err := s.place(ctx, e, routes); err != nil {
		return err
	}
	if err := s.install(ctx, e); err != nil {
		return err
	}
	s.awaitMarks(ctx, e)
	s.mu.Lock()
	e.accepted = time.Now().UTC()
	s.mu.Unlock()
	if err := s.save(ctx, e); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.Declared.Add(ctx, e.class.Name, &e.class); err != nil {
		return err
	}
	s.mu.Lock()
	e.state, e.reason = StateActive, ""
	s.reindex()
	s.mu.Unlock()
	s.treatments.Changed()
	return nil
}

// place gives a class its routes, and finds the mark that it needs on userspace
// datapaths. Where it was before it keeps its queues until its rules have left.
func (s *Service) place(ctx context.Context, e *entry, routes []Route) error {
	userspace := map[openflow.DatapathID]bool{}
	any := false
	for _, d := range switchesOf(routes) {
		var err error
		if userspace[d], err = s.userspace(ctx, d); err != nil {
			return err
		}
		any = any || userspace[d]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
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
		if mark, err = s.freeMark(e, append(portsOf(routes), leaving...)); err != nil {
			return err
		}
	}
	e.placement, e.leaving = placement{routes: routes, userspace: userspace, mark: mark, own: own}, leaving
	return nil
}

// install brings a placed class into the switches.
func (s *Service) install(ctx context.Context, e *entry) error {
	s.mu.Lock()
	ports := portsOf(e.routes)
	p := program(&e.class, e.routes, e.queue, e.own, maps.Clone(e.userspace))
	s.mu.Unlock()
	if err := s.ensureQueues(ctx, bySwitch(ports)); err != nil {
		if errors.Is(err, ovsdb.ErrForeign) {
			return &Refusal{"flows", e.class.Name, err.Error()}
		}
		return err
	}
	err := s.rules.Apply(ctx, ruleKey(e.class.Name), p, rule.ApplyOptions{Ordered: true})
	switch {
	case err == nil && s.critical != nil:
		s.critical.GiveWay(e.class.matches(), "the class "+e.class.Name)
	case errors.Is(err, network.ErrConflict):
		return &Refusal{"flows", e.class.Name, fmt.Sprintf("another class of this priority has the same flow: %v", err)}
	case errors.Is(err, network.ErrInvalid):
		return &Refusal{"flows", e.class.Name, fmt.Sprintf("two of its flows are the same at a switch where they part: %v", err)}
	}
	return err
}

// undo removes what an unfinished class has left, whatever of it can be removed.
func (s *Service) undo(e *entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.tasks.Context()), undoTimeout)
	defer cancel()
	e.work.Lock() // it may be moved already, if it was withdrawn at the very end
	defer e.work.Unlock()
	err := s.erase(ctx, e.class.Name)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrCleanupPending, err)
	}
	if err = errors.Join(err, s.uninstall(ctx, e, err != nil)); err != nil {
		s.log.Warn("a class that was not accepted", "class", e.class.Name, "error", err)
	}
	return err
}

// uninstall takes a class out of everything but the store, in which its placement may be
// left.
func (s *Service) uninstall(ctx context.Context, e *entry, stored bool) error {
	err := s.rules.Remove(ctx, ruleKey(e.class.Name))
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrCleanupPending, err)
	}
	s.book.Release(bookKey(e.class.Name))
	s.book.Release(carriedKey(e.class.Name))
	s.mu.Lock()
	ports := e.held()
	delete(s.classes, e.class.Name)
	s.reindex()
	if stored || err != nil {
		s.left[e.class.Name] = true
	}
	s.mu.Unlock()
	s.treatments.Changed()
	s.forget(e.class.Name)
	// Switches that are away lose the class's queues when they come back. At ports that
	// somebody else has configured it has none.
	switches, up := map[openflow.DatapathID][]uint32{}, s.net.Datapaths()
	for _, p := range ports {
		if slices.Contains(up, p.Switch) {
			switches[p.Switch] = nil
		}
	}
	return errors.Join(err, s.ensureQueues(ctx, switches))
}

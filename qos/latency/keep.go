package latency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// debounce is how long changes of the network are collected before they are looked at.
const debounce = 100 * time.Millisecond

// resync is the time after which classes that could not be placed are looked at once
// more.
const resync = 5 * time.Second

// keepUp brings classes in step with the network.
func (s *Service) keepUp(ctx context.Context) {
	s.completePromises()
	s.removeLeft(ctx)
	s.reconcileAll(ctx)
	s.carryAll(ctx)
	if time.Since(s.started) > s.settings.Settle {
		s.replaceAll(ctx)
	}
}

// movers bounds the classes that are moved at once.
const movers = 16

// replaceAll finds new ways for the classes whose way is broken, those of high priority
// first, after those whose guaranteed rate does not fit any more have made room.
func (s *Service) replaceAll(ctx context.Context) {
	s.displaceAll(ctx)
	s.mu.Lock()
	var broken []*entry
	for _, e := range s.sortedClasses() {
		if e.state != StateProvisioning && (e.state == StateDegraded || !s.intact(e)) {
			broken = append(broken, e)
		}
	}
	s.mu.Unlock()
	slices.SortStableFunc(broken, func(a, b *entry) int { return cmp.Compare(a.class.Priority, b.class.Priority) })
	tasks.Each(broken, movers, func(e *entry) { s.replace(ctx, e) })
}

// intact reports whether the way of a class is still there. The lock is held.
func (s *Service) intact(e *entry) bool {
	t := s.net.Topology()
	for i := range e.routes {
		r := &e.routes[i]
		if hops, moves := s.movingWay(&e.class.Flows[r.Flow]); moves {
			if !slices.Equal(hops, r.Hops) {
				return false
			}
			continue
		}
		last := r.Hops[len(r.Hops)-1]
		if src, known := s.known(e.class.Flows[r.Flow].Src); known && !r.Tree && src.At != portRef(r.Hops[0].Switch, r.Hops[0].In) {
			return false
		}
		dst := portRef(last.Switch, last.Out)
		h, known := s.known(e.class.Flows[r.Flow].Dst)
		switch {
		case known:
			dst = h.At
		case r.Tree:
			continue // nobody knows where it leads now
		}
		if !r.stands(t, dst) {
			return false
		}
	}
	return true
}

// begin waits until nobody else works on a class, which may have been removed by then. The
// context bounds the work, and end ends it.
func (e *entry) begin(ctx context.Context, timeout time.Duration) (_ context.Context, end func()) {
	e.work.Lock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return ctx, func() { cancel(); e.work.Unlock() }
}

// replace moves a class to another way: queues first, then rules, and the old queues
// go when nothing uses them.
func (s *Service) replace(ctx context.Context, e *entry) {
	ctx, end := e.begin(ctx, s.settings.Timeout)
	defer end()
	if !s.has(e) {
		return
	}
	err := s.move(ctx, e)
	s.mu.Lock()
	first := err == nil && e.accepted.IsZero()
	if first {
		e.accepted = time.Now().UTC()
	}
	placed := e.routes != nil
	s.mu.Unlock()
	switch {
	case err == nil:
		err = s.save(ctx, e)
	case placed:
		s.yield(e)
	default: // its rules are of another form of it, or of none
		s.book.Release(bookKey(e.class.Name))
		err = errors.Join(err, s.rules.Remove(ctx, ruleKey(e.class.Name)))
	}
	s.mu.Lock()
	changed := e.follow(err)
	left := e.leaving
	e.leaving = nil
	s.mu.Unlock()
	s.promiseCarried(e) // where it goes by itself now it needs no second promise
	switch {
	case err == nil && first:
		s.publish("accepted", e.accepting())
	case err == nil:
		s.publish("moved", map[string]any{"class": e.class.Name, "switches": fmt.Sprint(switchesOf(e.routes))})
	case changed:
		s.publish("degraded", map[string]any{"class": e.class.Name, "reason": err.Error()})
	}
	if queueErr := s.ensureQueues(ctx, bySwitch(left)); queueErr != nil && err == nil {
		s.log.Warn("queues of a way that is left", "class", e.class.Name, "error", queueErr)
	}
}

// follow has the state of a class follow what became of an attempt to move it, and says
// whether that is new. The lock is held.
func (e *entry) follow(err error) (changed bool) {
	state, reason := StateActive, ""
	if err != nil {
		state, reason = StateDegraded, err.Error()
	} else if ill := e.illness(); ill != "" {
		state, reason = StateIneffective, ill
	}
	changed = e.state != state || e.reason != reason
	e.state, e.reason = state, reason
	return changed
}

// move brings a class to another way. If that fails, its rules are those of the way that
// it had, and so are its promise and its queues.
func (s *Service) move(ctx context.Context, e *entry) error {
	s.mu.Lock()
	before := e.placement
	s.mu.Unlock()
	routes, err := s.choose(ctx, &e.class)
	if err != nil {
		return err
	}
	if err = s.place(ctx, e, routes); err == nil {
		if err = s.install(ctx, e); err == nil {
			return nil
		}
	}
	s.mu.Lock()
	tried := portsOf(e.routes)
	e.placement = before
	e.leaving = append(e.leaving, tried...)
	s.mu.Unlock()
	s.restorePromise(e)
	return err
}

package classes

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// update makes the queues and rules of the classes match the network.
func (s *Service) update(ctx context.Context) {
	s.completePromises(ctx)
	s.placer.retryCleanups(ctx)
	s.reconcileAll(ctx)
	s.carryAll(ctx)
	if s.networkSettled() {
		s.replaceAll(ctx)
	}
}

// networkSettled reports whether the start was long enough ago for the network to have been
// discovered.
func (s *Service) networkSettled() bool { return time.Since(s.started) > s.Settle }

// completePromises enters the missing default rates of restored classes into the book once the
// capacities are known.
func (s *Service) completePromises(ctx context.Context) {
	for _, e := range s.classes.filter(func(e *entry) bool { return e.unbooked }) {
		s.placer.withLock(ctx, e, func(context.Context) { s.plan.restore(e) })
	}
}

// carryAll gives classes their queues wherever other services carry their connections.
func (s *Service) carryAll(ctx context.Context) {
	now, settled := time.Now(), s.networkSettled()
	left := map[*entry][]place{}
	work := s.classes.filter(func(e *entry) bool {
		if e.state == StateProvisioning {
			return false
		}
		left[e] = e.carriage.expire(now)
		look := e.carriage.hasMissing() || len(left[e]) > 0 || settled && e.carriage.restored
		e.carriage.restored = e.carriage.restored && !settled
		return look
	})
	tasks.Each(work, maxMoves, func(e *entry) {
		s.placer.withLock(ctx, e, func(ctx context.Context) { s.placer.carry(ctx, e, left[e]) })
	})
}

// displaceAll moves the classes whose guaranteed rate no longer fits because a link of their routes
// has lost capacity. If there is no other route, the rate is suspended. It handles one class after
// the other, those of low priority first and, within one priority, the youngest first: the
// bandwidth that one class releases may be enough for the others.
func (s *Service) displaceAll(ctx context.Context) {
	all := s.classes.filter(func(e *entry) bool { return e.state != StateProvisioning && !e.suspended })
	s.classes.mu.Lock()
	slices.SortStableFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.class.Priority, a.class.Priority), b.accepted.Compare(a.accepted))
	})
	s.classes.mu.Unlock()
	for _, e := range all {
		if ctx.Err() == nil && s.plan.overbooked(e) {
			s.placer.replace(ctx, e)
		}
	}
}

// replaceAll finds new routes for the classes whose routes are broken, those of high priority
// first. Before that, it moves classes whose guaranteed rate no longer fits, so that they make
// room.
func (s *Service) replaceAll(ctx context.Context) {
	s.displaceAll(ctx)
	broken := s.classes.filter(func(e *entry) bool {
		return e.state != StateProvisioning && (e.state == StateDegraded || !s.plan.intact(e))
	})
	slices.SortStableFunc(broken, func(a, b *entry) int { return cmp.Compare(a.class.Priority, b.class.Priority) })
	tasks.Each(broken, maxMoves, func(e *entry) { s.placer.replace(ctx, e) })
}

package latency

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

const (
	// debounce is how long changes of the network are collected before they are looked at,
	// resync the time after which classes that could not be placed are looked at once more.
	debounce = 100 * time.Millisecond
	resync   = 5 * time.Second
	// movers bounds the classes that are moved at once.
	movers = 16
)

// keepUp brings classes in step with the network.
func (s *Service) keepUp(ctx context.Context) {
	s.completePromises(ctx)
	s.placer.removeLeft(ctx)
	s.reconcileAll(ctx)
	s.carryAll(ctx)
	if s.settled() {
		s.replaceAll(ctx)
	}
}

// settled says whether the network has had the time to be discovered since the start.
func (s *Service) settled() bool { return time.Since(s.started) > s.Settle }

// completePromises enters default rates of restored classes as capacities become known.
func (s *Service) completePromises(ctx context.Context) {
	for _, e := range s.classes.those(func(e *entry) bool { return e.unbooked }) {
		s.placer.work(ctx, e, func(context.Context) { s.plan.restore(e) })
	}
}

// carryAll gives classes their queues wherever connections of theirs are carried.
func (s *Service) carryAll(ctx context.Context) {
	now, settled := time.Now(), s.settled()
	left := map[*entry][]place{}
	work := s.classes.those(func(e *entry) bool {
		if e.state == StateProvisioning {
			return false
		}
		left[e] = e.carriage.expire(now)
		look := e.carriage.open() || len(left[e]) > 0 || settled && e.carriage.restored
		e.carriage.restored = e.carriage.restored && !settled
		return look
	})
	tasks.Each(work, movers, func(e *entry) {
		s.placer.work(ctx, e, func(ctx context.Context) { s.placer.carry(ctx, e, left[e]) })
	})
}

// displaceAll moves the classes whose guaranteed rate does not fit any more, because a
// link of their way has less capacity than when they were accepted; where there is no
// other way, they yield. Those of low priority come first, of one priority the youngest,
// and one after the other: what one gives up may be all that is missing.
func (s *Service) displaceAll(ctx context.Context) {
	all := s.classes.those(func(e *entry) bool { return e.state != StateProvisioning && !e.yields })
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

// replaceAll finds new ways for the classes whose way is broken, those of high priority
// first, after those whose guaranteed rate does not fit any more have made room.
func (s *Service) replaceAll(ctx context.Context) {
	s.displaceAll(ctx)
	broken := s.classes.those(func(e *entry) bool {
		return e.state != StateProvisioning && (e.state == StateDegraded || !s.plan.intact(e))
	})
	slices.SortStableFunc(broken, func(a, b *entry) int { return cmp.Compare(a.class.Priority, b.class.Priority) })
	tasks.Each(broken, movers, func(e *entry) { s.placer.replace(ctx, e) })
}

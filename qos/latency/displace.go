package latency

import (
	"cmp"
	"context"
	"slices"
)

// displaceAll moves the classes whose guaranteed rate does not fit any more, because a
// link of their way has less capacity than when they were accepted; where there is no
// other way, they yield. Those of low priority come first, of one priority the youngest,
// and one after the other: what one gives up may be all that is missing.
func (s *Service) displaceAll(ctx context.Context) {
	s.mu.Lock()
	all := slices.DeleteFunc(s.sortedClasses(), func(e *entry) bool { return e.state == StateProvisioning || e.yields })
	slices.SortStableFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.class.Priority, a.class.Priority), b.accepted.Compare(a.accepted))
	})
	s.mu.Unlock()
	for _, e := range all {
		if ctx.Err() == nil && s.book.Overbooked(bookKey(e.class.Name)) != nil {
			s.replace(ctx, e)
		}
	}
}

// yield takes from a class that could not be moved what is guaranteed to it, if that does
// not fit where it is: or queues would guarantee more than there is, and those of other
// classes would not have theirs. Its queues stay, with the least rate. e.work is locked.
func (s *Service) yield(e *entry) {
	if s.book.Overbooked(bookKey(e.class.Name)) == nil {
		return
	}
	s.mu.Lock()
	e.yields = true
	e.leaving = append(e.leaving, portsOf(e.routes)...) // their queues are looked at again
	s.mu.Unlock()
	s.restorePromise(e)
}

package content

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// adaptiveLimit limits the pieces in flight. The limit increases by one for each piece that was
// taken, and decreases after one that was not, so that requesters that share a slow path get their
// pieces in time.
type adaptiveLimit struct {
	free *semaphore.Weighted

	mu      sync.Mutex
	current int // the current limit
	maximum int // the maximum of the limit
	excess  int // by how much the pieces in flight and the free slots exceed the limit
}

// minLimit is the minimum of the limit.
const minLimit = 4

// newAdaptiveLimit returns a limit that begins with first and increases up to all.
func newAdaptiveLimit(first, all int) *adaptiveLimit {
	r := &adaptiveLimit{free: semaphore.NewWeighted(int64(all)), current: first, maximum: all}
	_ = r.free.TryAcquire(int64(all - first)) // it cannot fail, because no slot is in use
	return r
}

// acquire waits until one more piece may be in flight.
func (r *adaptiveLimit) acquire(ctx context.Context) error { return r.free.Acquire(ctx, 1) }

// release records that a piece is no longer in flight; if it was taken, the limit increases.
func (r *adaptiveLimit) release(taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	back := int64(1)
	switch {
	case taken && r.excess > 0:
		r.excess--
		r.current++
	case taken && r.current < r.maximum:
		r.current++
		back++
	}
	if r.excess > 0 {
		r.excess--
		back--
	}
	r.free.Release(back)
}

// halve halves the limit, and decrease reduces it by one.
func (r *adaptiveLimit) halve() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(r.current / 2)
}

func (r *adaptiveLimit) decrease() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(r.current - 1)
}

// set sets the limit. r.mu is held.
func (r *adaptiveLimit) set(most int) {
	most = max(most, minLimit)
	r.excess += r.current - most
	r.current = most
	for r.excess > 0 && r.free.TryAcquire(1) {
		r.excess--
	}
}

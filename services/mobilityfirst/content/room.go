package content

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// room is for how many pieces are under way: one more for each that was taken, fewer after one that was not, so that those who
// share a slow way get theirs in time.
type room struct {
	free *semaphore.Weighted

	mu     sync.Mutex
	most   int // how many may be
	all    int // how many may be at most
	excess int // by how many more there is still room than there may be
}

// leastRoom is how many may always be under way.
const leastRoom = 4

// newRoom is for all at most, and for some of them at first.
func newRoom(first, all int) *room {
	r := &room{free: semaphore.NewWeighted(int64(all)), most: first, all: all}
	_ = r.free.TryAcquire(int64(all - first)) // nobody has any
	return r
}

// enter waits until there is room for one more.
func (r *room) enter(ctx context.Context) error { return r.free.Acquire(ctx, 1) }

// leave is for one that is not under way any more: if it was taken, one more may be from now on.
func (r *room) leave(taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	back := int64(1)
	switch {
	case taken && r.excess > 0:
		r.excess--
		r.most++
	case taken && r.most < r.all:
		r.most++
		back++
	}
	if r.excess > 0 {
		r.excess--
		back--
	}
	r.free.Release(back)
}

// halve has half as many be under way from now on, decrease one less.
func (r *room) halve() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit(r.most / 2)
}

func (r *room) decrease() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit(r.most - 1)
}

// limit is for how many may be. r.mu is held.
func (r *room) limit(most int) {
	most = max(most, leastRoom)
	r.excess += r.most - most
	r.most = most
	for r.excess > 0 && r.free.TryAcquire(1) {
		r.excess--
	}
}

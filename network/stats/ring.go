package stats

import "iter"

// ring holds the latest items that were pushed into it.
type ring[T any] struct {
	items []T
	next  int // index of the next write, once the ring is full
}

// push adds an item. It replaces the oldest if there are size items already.
func (r *ring[T]) push(v T, size int) {
	if len(r.items) < size {
		r.items = append(r.items, v)
		return
	}
	r.items[r.next] = v
	r.next = (r.next + 1) % len(r.items)
}

// latest returns the last item, and whether there is one.
func (r *ring[T]) latest() (v T, ok bool) {
	if len(r.items) == 0 {
		return v, false
	}
	return r.items[(r.next+len(r.items)-1)%len(r.items)], true
}

// all returns an iterator over the items, the oldest first.
func (r *ring[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for i := range r.items {
			if !yield(r.items[(r.next+i)%len(r.items)]) {
				return
			}
		}
	}
}

package agent

import "time"

// windowInterval is the least time between two looks at the window: on a short
// path a round trip says more about scheduling than about the path.
const windowInterval = 10 * time.Millisecond

// creditTrips is how many round trips' bytes a peer may send ahead. Two pass until it hears that
// something was taken; and small chunks, as end hosts send while they start, cost twice as much.
const creditTrips = 4

// window sizes the credit that a receiver grants. It starts small and grows to
// four times what the end host takes in a round trip, and to eight times while
// that itself is growing: a sender in slow start is two round trips ahead of
// what the receiver sees. So it is never the limit of a transfer that flows, and
// stays small for an end host that is slow.
type window struct {
	size, most int
	rtt        func() time.Duration

	since time.Time
	base  uint64
	last  float64 // what was taken in the round trip before
}

// note looks at the bytes consumed so far and may enlarge the window.
func (w *window) note(consumed uint64, now time.Time) {
	if w.size >= w.most {
		return
	}
	if w.since.IsZero() {
		w.since, w.base = now, consumed
		return
	}
	interval := max(w.rtt(), windowInterval)
	passed := now.Sub(w.since)
	if passed < interval {
		return
	}
	perTrip := float64(consumed-w.base) * float64(interval) / float64(passed)
	w.since, w.base = now, consumed
	factor := creditTrips
	if perTrip > 1.25*w.last {
		factor *= 2
	}
	w.last = perTrip
	w.size = min(w.most, max(w.size, int(float64(factor)*perTrip)))
}

package agent

import "time"

// windowInterval is the least time between two adjustments of the window: on a short path,
// a round trip reflects scheduling more than the path.
const windowInterval = 10 * time.Millisecond

// creditTrips is the number of round trips whose bytes a peer may send ahead. It takes two
// until the peer learns that something was consumed, and small chunks, as end hosts send
// while they start, cost twice as much.
const creditTrips = 4

// window sizes the credit that a receiver grants. It starts small and grows to four times
// what the end host consumes in a round trip, and to eight times while that is growing,
// because a sender in slow start is two round trips ahead of what the receiver sees. So the
// window never limits a transfer that flows, and it stays small for an end host that is
// slow.
type window struct {
	size, most int
	rtt        func() time.Duration

	since time.Time
	base  uint64
	last  float64 // what was consumed in the previous round trip
}

// note updates the window with the bytes consumed so far, and may enlarge it.
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

package ingress

import "time"

// A sliding window divides a second into slots. It has one slot more, the current one, so that it
// always covers a complete second that has passed.
const (
	slots = 10
	slot  = time.Second / slots
)

// slidingWindow sums the numbers that are added within one second. The zero value is ready to use.
// Times (clock) are relative to a moment in the past that the caller chooses.
type slidingWindow struct {
	parts [slots + 1]int64
	at    int64 // number of the current slot
	sum   int64
}

// advance removes slots that have left the window.
func (w *slidingWindow) advance(clock time.Duration) {
	part := int64(clock / slot)
	for range min(part-w.at, int64(len(w.parts))) {
		w.at++
		w.sum -= *w.part(0)
		*w.part(0) = 0
	}
	if part > w.at { // all slots are empty
		w.at = part
	}
}

// part returns the slot that is ago slots before the current one. The slot with ago = slots is the
// oldest.
func (w *slidingWindow) part(ago int64) *int64 {
	n := int64(len(w.parts))
	return &w.parts[((w.at-ago)%n+n)%n]
}

// add adds n if the sum of the last second then is at most most, and reports whether it has added n.
func (w *slidingWindow) add(clock time.Duration, n, most int64) bool {
	w.advance(clock)
	if w.sum-*w.part(slots)+n > most {
		return false
	}
	*w.part(0) += n
	w.sum += n
	return true
}

// second returns the sum of the last complete second.
func (w *slidingWindow) second(clock time.Duration) int64 {
	w.advance(clock)
	return w.sum - *w.part(0)
}

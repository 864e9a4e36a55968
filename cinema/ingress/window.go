package ingress

import "time"

// A window's second is divided into slots; it has one more than that, so that there is always
// a whole second that is over.
const (
	slots = 10
	slot  = time.Second / slots
)

// window adds up what passes within one second. The zero value is ready. Its clock is the time
// since some moment in the past.
type window struct {
	parts [slots + 1]int64
	at    int64 // the part of now
	sum   int64
}

// turn leaves out what is over.
func (w *window) turn(clock time.Duration) {
	part := int64(clock / slot)
	for range min(part-w.at, int64(len(w.parts))) {
		w.at++
		w.sum -= *w.part(0)
		*w.part(0) = 0
	}
	if part > w.at { // all parts are empty
		w.at = part
	}
}

// part is the one that was so many parts ago; that of slots ago is the oldest.
func (w *window) part(ago int64) *int64 {
	n := int64(len(w.parts))
	return &w.parts[((w.at-ago)%n+n)%n]
}

// add takes n more if what has passed within a second stays within most.
func (w *window) add(clock time.Duration, n, most int64) bool {
	w.turn(clock)
	if w.sum-*w.part(slots)+n > most {
		return false
	}
	*w.part(0) += n
	w.sum += n
	return true
}

// second is what has passed in the last second that is over.
func (w *window) second(clock time.Duration) int64 {
	w.turn(clock)
	return w.sum - *w.part(0)
}

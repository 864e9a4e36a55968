package stream

import "time"

// window is the congestion window: the number of frames that may be in flight (RFC 5681). It does
// not grow beyond what the receiver's limit lets the sender use.
type window struct {
	frames    float64
	threshold float64 // below it, the window grows by each acknowledged frame
	used      bool    // the window was full when frames were last sent
	// recovery is the last transmission before the window was last reduced. The loss of a
	// transmission until then does not reduce it again.
	recovery uint64
}

const (
	initialWindow = 16
	minWindow     = 4
	// modestWindow is the window size up to which the window grows whatever the queue.
	modestWindow = 128
	// decreaseFactor multiplies the window when a frame is lost (RFC 9438, 4.6).
	decreaseFactor = 0.7
)

func newWindow() window { return window{frames: initialWindow, threshold: 1 << 16} }

// size returns the number of frames that may be in flight.
func (w *window) size() int { return int(w.frames) }

// setUsed records whether the frames in flight fill the window.
func (w *window) setUsed(under int) { w.used = under >= w.size() }

// grow enlarges the window after acknowledged frames. A window that was not full says nothing about
// the path, and stays.
func (w *window) grow(frames int) {
	switch {
	case !w.used:
	case w.frames < w.threshold:
		w.frames += float64(frames)
	default:
		w.frames += float64(frames) / w.frames
	}
}

// lost reduces the window after lost transmissions, once for all that were in flight at that time.
// latest is the latest of the lost transmissions, and made the number of all transmissions.
func (w *window) lost(latest, made uint64) {
	if latest <= w.recovery {
		return
	}
	w.recovery = made
	w.frames = max(w.frames*decreaseFactor, minWindow)
	w.threshold = w.frames
}

// collapse reduces the window to the minimum after the receiver has been silent.
func (w *window) collapse() {
	w.threshold = max(w.frames*decreaseFactor, minWindow)
	w.frames = minWindow
}

// roundTrip estimates the round-trip time (RFC 6298).
type roundTrip struct {
	smooth, variation time.Duration
	minimum           time.Duration // approximately the round-trip time without a queue
	timeouts          int           // deadlines that have passed since the last answer
}

const (
	// initialTimeout is the timeout before the first measurement. minTimeout and maxTimeout bound
	// later timeouts.
	initialTimeout = 200 * time.Millisecond
	minTimeout     = 20 * time.Millisecond
	maxTimeout     = 2 * time.Second
)

// measure updates the estimate with a measured round trip.
func (r *roundTrip) measure(d time.Duration) {
	d = max(d, 1)
	if r.smooth == 0 {
		r.smooth, r.variation, r.minimum = d, d/2, d
		return
	}
	if r.minimum == 0 {
		r.minimum = d
	}
	r.minimum = min(r.minimum+(r.smooth-r.minimum)/minimumAging, d)
	r.variation += ((r.smooth - d).Abs() - r.variation) / 4
	r.smooth += (d - r.smooth) / 8
}

// minimumAging is the number of measurements in which the minimum approaches the current round-trip
// time, so that the minimum of an earlier route does not last forever.
const minimumAging = 1024

// isQueued reports whether frames wait in a queue for about as long as they travel: whether the
// smoothed round trip exceeds twice the minimum by more than queueNoise.
func (r *roundTrip) isQueued() bool { return r.smooth > 2*r.minimum+queueNoise }

// isDelayed reports whether the smoothed round trip exceeds twice the minimum by more than
// queueTarget, the longest time for which a queue should persist (RFC 8289, 4.4).
func (r *roundTrip) isDelayed() bool { return r.smooth > 2*r.minimum+queueTarget }

const (
	// queueNoise is the variation of round trips without a queue.
	queueNoise = time.Millisecond
	// queueTarget is how long frames may wait in a queue.
	queueTarget = 5 * time.Millisecond
)

// timeout returns how long the sender waits for an acknowledgement before it treats frames in
// flight as lost.
func (r *roundTrip) timeout() time.Duration {
	p := initialTimeout
	if r.smooth > 0 {
		p = max(r.smooth+4*r.variation, minTimeout)
	}
	return min(p<<min(r.timeouts, 10), maxTimeout)
}

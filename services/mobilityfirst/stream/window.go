package stream

import "time"

// window is how many frames may be under way, from what has been lost (RFC 5681). It is no larger
// than the room that the receiver gives allows to use.
type window struct {
	frames    float64
	threshold float64 // until there it grows by each frame that comes
	full      bool    // it was used when frames were last sent
	// recovery is the last transmission before the window was made smaller: what was sent until
	// then says nothing new when it is lost.
	recovery uint64
}

const (
	firstWindow = 16
	leastWindow = 4
	// modest is a window that grows whatever the queue.
	modest = 128
	// keep is what is left of the window when a frame is lost (RFC 9438, 4.6).
	keep = 0.7
)

func newWindow() window { return window{frames: firstWindow, threshold: 1 << 16} }

// size is how many frames may be under way.
func (w *window) size() int { return int(w.frames) }

// used notes how many are.
func (w *window) used(under int) { w.full = under >= w.size() }

// grow is for frames that have come. A window that was not used says nothing of the way.
func (w *window) grow(frames int) {
	switch {
	case !w.full:
	case w.frames < w.threshold:
		w.frames += float64(frames)
	default:
		w.frames += float64(frames) / w.frames
	}
}

// missed makes the window smaller for transmissions that are lost, by the latest of these, when so
// many have been made: once for all that were under way then.
func (w *window) missed(latest, made uint64) {
	if latest <= w.recovery {
		return
	}
	w.recovery = made
	w.frames = max(w.frames*keep, leastWindow)
	w.threshold = w.frames
}

// collapse is for a receiver that has been silent.
func (w *window) collapse() {
	w.threshold = max(w.frames*keep, leastWindow)
	w.frames = leastWindow
}

// roundTrip is how long answers take (RFC 6298).
type roundTrip struct {
	smooth, vary time.Duration
	least        time.Duration // about what it is without a queue
	tries        int           // deadlines that have passed since anything came
}

const (
	// Until something was measured, and between what is measured and patience.
	firstPatience = 200 * time.Millisecond
	leastPatience = 20 * time.Millisecond
	mostPatience  = 2 * time.Second
)

// measure takes a round trip.
func (r *roundTrip) measure(d time.Duration) {
	d = max(d, 1)
	if r.smooth == 0 {
		r.smooth, r.vary, r.least = d, d/2, d
		return
	}
	if r.least == 0 {
		r.least = d
	}
	r.least = min(r.least+(r.smooth-r.least)/leastAges, d)
	r.vary += ((r.smooth - d).Abs() - r.vary) / 4
	r.smooth += (d - r.smooth) / 8
}

// leastAges is in how many measurements the least round trip comes near to what it is now, lest that of another route is
// believed in for ever.
const leastAges = 1024

// queued says whether frames wait about as long in a queue as their way takes.
func (r *roundTrip) queued() bool { return r.smooth > 2*r.least+queueNoise }

// delayed says whether the queue is longer than that, and than any is to be for long (RFC 8289, 4.4).
func (r *roundTrip) delayed() bool { return r.smooth > 2*r.least+queueTarget }

const (
	// queueNoise is what round trips differ by without a queue.
	queueNoise = time.Millisecond
	// queueTarget is how long frames may wait in a queue.
	queueTarget = 5 * time.Millisecond
)

// patience is how long the receiver may be silent.
func (r *roundTrip) patience() time.Duration {
	p := firstPatience
	if r.smooth > 0 {
		p = max(r.smooth+4*r.vary, leastPatience)
	}
	return min(p<<min(r.tries, 10), mostPatience)
}

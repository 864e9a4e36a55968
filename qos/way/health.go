package way

import "time"

const (
	// grace is how long a switch of a way may be without a connection to the controller before
	// it is taken for dead: it may have lost that alone. startGrace is the same after a start,
	// when all have to come back.
	grace      = 3 * time.Second
	startGrace = 15 * time.Second
)

// Health is what is known of a way's links; the zero value is that of one which has not been
// seen since the start.
type Health struct {
	whole  bool      // all of them have been seen
	broken time.Time // since when one is missing that may be there
}

// Whole is the health of a way all of whose links are there.
func Whole() Health { return Health{whole: true} }

// Seen says that all links of the way have been seen since the start.
func (h *Health) Seen() bool { return h.whole }

// Broken is since when a link is missing that may be there, zero if none is.
func (h *Health) Broken() time.Time { return h.broken }

// Lost takes what Missing says, and tells whether the way is to be given up: at once if that is
// certain and the way has been whole, else when it has lasted.
func (h *Health) Lost(missing string, certain bool, now time.Time) bool {
	switch {
	case missing == "":
		*h = Whole()
		return false
	case h.whole && certain:
		return true
	case h.broken.IsZero():
		h.broken = now
	}
	patience := grace
	if !h.whole {
		patience = startGrace
	}
	return now.Sub(h.broken) >= patience
}

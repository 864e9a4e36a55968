package flowpath

import "time"

const (
	// disconnectGrace is how long a switch of a path may be disconnected from the
	// controller before it counts as dead: it may have lost only that connection.
	// startGrace is the same after a start, when all switches have to connect again.
	disconnectGrace = 3 * time.Second
	startGrace      = 15 * time.Second
)

// Health records whether a path's links are present. The zero value belongs to a path that has not
// been complete since the start.
type Health struct {
	intact       bool      // whether all links have been present together since the start
	missingSince time.Time // time since which a link is not certain to be present
}

// Intact returns the health of a path whose links are all present.
func Intact() Health { return Health{intact: true} }

// WasIntact reports whether all links of the path have been present together since the start.
func (h *Health) WasIntact() bool { return h.intact }

// MissingSince returns the time since which a link is reported as missing but may still exist; zero
// if none is.
func (h *Health) MissingSince() time.Time { return h.missingSince }

// Update records which link is missing, as kit.MissingLink reports it, and reports whether the path
// has to be given up. If the loss is certain and the path was intact, that is so at once, otherwise
// only after disconnectGrace or startGrace.
func (h *Health) Update(missing string, certain bool, now time.Time) bool {
	switch {
	case missing == "":
		*h = Intact()
		return false
	case h.intact && certain:
		return true
	case h.missingSince.IsZero():
		h.missingSince = now
	}
	grace := disconnectGrace
	if !h.intact {
		grace = startGrace
	}
	return now.Sub(h.missingSince) >= grace
}

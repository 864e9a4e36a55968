package reserve

import "time"

// entry is a promise in the book.
type entry struct {
	promise Promise
	rates   map[Link]uint64
	answers map[Link]uint64 // for the links that carry answers
	history rateHistory
	// before holds what the links carried when the promise was made.
	before map[Link]uint64
	// counters holds the counters of its traffic, enteredAt when they were entered.
	// installedAt holds the time from which the counted traffic passes the link; it has no
	// entry while the rules are being written.
	counters               map[Link]Counter
	enteredAt, installedAt map[Link]time.Time
}

// affectsOthers reports whether others have to be notified of the promise: it has a rate,
// or waits for one.
func (e *entry) affectsOthers() bool { return e.hasRate() || e.promise.Waits }

// hasRate reports whether a rate is promised, rather than only yielding traffic recorded.
func (e *entry) hasRate() bool {
	for _, rate := range e.rates {
		if rate > 0 {
			return true
		}
	}
	return false
}

// sum returns the total rate asked of each link.
func sum(shares []Share) map[Link]uint64 {
	out := make(map[Link]uint64, len(shares))
	for _, s := range shares {
		out[s.Link] += s.Rate
	}
	return out
}

// maxSeen returns the most of the promise's traffic that a measurement of a link may
// contain.
func (e *entry) maxSeen(l Link) uint64 {
	answers, ok := e.answers[l]
	switch {
	case !ok:
		return e.history.maxRate()
	case e.history.tooShort():
		return answers
	}
	return min(answers, e.history.maxRate())
}

// excess returns how much the promise's traffic on a link is known to exceed the promise.
// It takes two readings, because one may span two times. The excess counts as use, but not
// as the promise's.
func (e *entry) excess(l Link) uint64 {
	if _, answers := e.answers[l]; answers || e.promise.Enforced || e.rates[l] == 0 {
		return 0
	}
	least := e.history.minRate()
	return least - min(least, e.rates[l])
}

// countedRate returns the part of what is promised on a link that is taken to be in its
// measurement.
func (e *entry) countedRate(l Link) uint64 { return min(e.history.maxRate(), e.rates[l]) }

package reserve

import "time"

// entry is a promise in the book.
type entry struct {
	promise Promise
	rates   map[Link]uint64
	answers map[Link]uint64 // expected rates of answers, for the links that carry answers
	history rateHistory
	// before holds the use of the links when the promise was made, in bit/s.
	before map[Link]uint64
	// counters holds the counters of the promise's traffic on each link, and enteredAt the times at
	// which they were entered. installedAt holds the time from which the counted traffic passes the
	// link. It has no entry while the rules are being written.
	counters               map[Link]Counter
	enteredAt, installedAt map[Link]time.Time
}

// affectsOthers reports whether users of the book have to be notified of the promise, because it
// has a rate or waits for one.
func (e *entry) affectsOthers() bool { return e.hasRate() || e.promise.Waits }

// hasRate reports whether a rate is promised. If not, the entry only records yielding traffic.
func (e *entry) hasRate() bool {
	for _, rate := range e.rates {
		if rate > 0 {
			return true
		}
	}
	return false
}

// sum returns the total rate that the shares request of each link.
func sum(shares []Share) map[Link]uint64 {
	out := make(map[Link]uint64, len(shares))
	for _, s := range shares {
		out[s.Link] += s.Rate
	}
	return out
}

// maxSeen returns the greatest rate of the promise's traffic that a measurement of a link may
// contain, in bit/s.
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

// excess returns by how much the promise's traffic on a link is known to exceed the promise, in
// bit/s. It requires two readings, because a single one may include the traffic of two intervals.
// The excess counts as traffic on the link, but not as the promise's.
func (e *entry) excess(l Link) uint64 {
	if _, answers := e.answers[l]; answers || e.promise.Enforced || e.rates[l] == 0 {
		return 0
	}
	least := e.history.minRate()
	return least - min(least, e.rates[l])
}

// countedRate returns the part of the rate promised on a link that the link's measurement is taken
// to include, in bit/s.
func (e *entry) countedRate(l Link) uint64 { return min(e.history.maxRate(), e.rates[l]) }

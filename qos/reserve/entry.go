package reserve

import "time"

// entry is a promise in the book.
type entry struct {
	promise Promise
	rates   map[Link]uint64
	answers map[Link]uint64 // of the links that carry answers
	seen    seen
	// before is what the links carried when the promise was made.
	before map[Link]uint64
	// counters count its traffic, since the times in entered. What they have counted since the
	// times in since has gone by the link; there is none while the rules are being written.
	counters       map[Link]Counter
	entered, since map[Link]time.Time
}

// tells reports whether others are to be told of the promise: something is promised or waited for.
func (e *entry) tells() bool { return e.promises() || e.promise.Waits }

// promises says whether a rate is promised, and not just noted who yields.
func (e *entry) promises() bool {
	for _, rate := range e.rates {
		if rate > 0 {
			return true
		}
	}
	return false
}

// sum adds up what is asked of each link.
func sum(shares []Share) map[Link]uint64 {
	out := make(map[Link]uint64, len(shares))
	for _, s := range shares {
		out[s.Link] += s.Rate
	}
	return out
}

// most is what a measurement of a link may contain of the promise's traffic.
func (e *entry) most(l Link) uint64 {
	answers, ok := e.answers[l]
	switch {
	case !ok:
		return e.seen.most()
	case e.seen.young():
		return answers
	}
	return min(answers, e.seen.most())
}

// excess is what the promise's traffic is known to be more than promised on a link, by
// two readings: one may be of two times. It is somebody's, and not the promise's.
func (e *entry) excess(l Link) uint64 {
	if _, answers := e.answers[l]; answers || e.promise.Enforced || e.rates[l] == 0 {
		return 0
	}
	least := e.seen.least()
	return least - min(least, e.rates[l])
}

// own is the part of what is promised on a link that is taken to be in its measurement.
func (e *entry) own(l Link) uint64 { return min(e.seen.most(), e.rates[l]) }

package storage

import "time"

const (
	// shortTerm and longTerm are over how many measurements the quality of a way is known, in the short term
	// and in the long. Chunks are handed on while the short is less than worse times the long: GSTAR, in the
	// MobilityFirst papers.
	shortTerm, longTerm, worse = 3, 10, 1.1
	// unheeded is by how much they may differ in any case: on a short way that is what an idle machine takes
	// more now and then.
	unheeded = time.Millisecond
)

// quality is how good the way to a destination is: half of the round trips of its last measurements.
type quality struct {
	last [longTerm]time.Duration
	n    int // of measurements
}

// measured adds a round trip.
func (q *quality) measured(roundTrip time.Duration) {
	q.last[q.n%longTerm] = roundTrip / 2
	q.n++
}

// good says whether the way is at least about as good as it was lately.
func (q *quality) good() bool {
	short, long := q.mean(shortTerm), q.mean(longTerm)
	return float64(short) < worse*float64(long) || short-long < unheeded
}

// mean is that of the last measurements, as many as there are.
func (q *quality) mean(of int) time.Duration {
	of = min(of, q.n)
	if of == 0 {
		return 0
	}
	sum := time.Duration(0)
	for i := range of {
		sum += q.last[(q.n-1-i)%longTerm]
	}
	return sum / time.Duration(of)
}

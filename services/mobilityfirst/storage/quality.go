package storage

import "time"

const (
	// shortTerm and longTerm are the numbers of measurements over which the quality of a path is
	// averaged. Chunks are delivered while the short-term average is less than tolerance times the
	// long-term one, as in GSTAR of the MobilityFirst papers.
	shortTerm, longTerm, tolerance = 3, 10, 1.1
	// noise is the difference that is always tolerated. On a short path an idle machine causes such
	// a difference now and then.
	noise = time.Millisecond
)

// quality is the quality of the path to a destination: half of its last round-trip times.
type quality struct {
	last [longTerm]time.Duration
	n    int // the number of measurements
}

// add adds a round-trip time.
func (q *quality) add(roundTrip time.Duration) {
	q.last[q.n%longTerm] = roundTrip / 2
	q.n++
}

// isGood reports whether the path is about as good as it was lately, or better.
func (q *quality) isGood() bool {
	short, long := q.mean(shortTerm), q.mean(longTerm)
	return float64(short) < tolerance*float64(long) || short-long < noise
}

// mean returns the mean of the last measurements, or of all if there are fewer.
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

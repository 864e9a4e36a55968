package network

import (
	"slices"
	"sync"
	"time"
)

// roundTrips are the latest round-trip times of a session. What counts is the
// median: link latencies are what is left of a probe's flight when these have
// been taken off, so one slow echo must not make a link look fast.
type roundTrips struct {
	mu   sync.Mutex
	last []time.Duration
}

// roundTripWindow is how many round trips are remembered.
const roundTripWindow = 8

func (r *roundTrips) add(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) == roundTripWindow {
		r.last = r.last[1:]
	}
	r.last = append(r.last, d)
}

// typical is the median, zero while there is none.
func (r *roundTrips) typical() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.last))
	return sorted[(len(sorted)-1)/2]
}

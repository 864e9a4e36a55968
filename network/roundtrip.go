package network

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
)

// roundTrips are the latest round-trip times of a session, some at each measuring.
type roundTrips struct {
	mu        sync.Mutex
	last      []time.Duration
	variation discovery.Variation
}

const (
	// roundTripsAtOnce is how many round trips are taken at one measuring: a busy
	// machine that holds one up may let the next pass.
	roundTripsAtOnce = 3
	// roundTripWindow is how many round trips are remembered: those of the time in
	// which discovery remembers the flights of probes.
	roundTripWindow = roundTripsAtOnce * discovery.FlightWindow
)

// add takes the round trips of one measuring.
func (r *roundTrips) add(ds ...time.Duration) {
	if len(ds) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.variation.Add(ds[0])
	r.last = append(r.last, ds...)
	r.last = slices.Delete(r.last, 0, max(0, len(r.last)-roundTripWindow))
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

// control is what the latency of links is measured against: a link's is what is
// left of a probe's flight when the shortest round trips have been taken off.
func (r *roundTrips) control() discovery.Control {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) == 0 {
		return discovery.Control{}
	}
	return discovery.Control{RoundTrip: slices.Min(r.last), Jitter: r.variation.Mean()}
}

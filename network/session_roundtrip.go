package network

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
)

// roundTrips are the latest round-trip times of a session.
type roundTrips struct {
	mu     sync.Mutex
	echoes []time.Duration
	// loops are those of packets, see there; none if the switch cannot do that.
	loops     []time.Duration
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

// addEchoes takes the round trips of one measuring.
func (r *roundTrips) addEchoes(ds []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.variation.Add(ds[0])
	r.echoes = latest(r.echoes, ds)
}

// addLoop takes the round trip of a packet.
func (r *roundTrips) addLoop(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loops = latest(r.loops, []time.Duration{d})
}

func latest(all, more []time.Duration) []time.Duration {
	all = append(all, more...)
	return slices.Delete(all, 0, max(0, len(all)-roundTripWindow))
}

// forgetLoops has echoes stand in for a switch that gives no packets back any more.
func (r *roundTrips) forgetLoops() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loops = nil
}

// typical is the median of echoes, zero while there is none.
func (r *roundTrips) typical() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.echoes) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.echoes))
	return sorted[(len(sorted)-1)/2]
}

// control is what the latency of links is measured against: a link's is what is
// left of a probe's flight when the shortest round trips have been taken off.
func (r *roundTrips) control() discovery.Control {
	r.mu.Lock()
	defer r.mu.Unlock()
	trips := r.loops
	if len(trips) == 0 {
		trips = r.echoes
	}
	if len(trips) == 0 {
		return discovery.Control{}
	}
	return discovery.Control{RoundTrip: discovery.Shortest(trips, roundTripsAtOnce*discovery.RecentFlights), Jitter: r.variation.Mean()}
}

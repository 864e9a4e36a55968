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
	// loopbacks are those of packets, see there; none if the switch cannot do that.
	loopbacks []time.Duration
	variation discovery.Variation
}

const (
	// roundTripsPerProbe is how many round trips are taken at one measuring: a busy
	// machine that holds one up may let the next pass.
	roundTripsPerProbe = 3
	// roundTripWindow is how many round trips are remembered: those of the time in
	// which discovery remembers the flights of probes.
	roundTripWindow = roundTripsPerProbe * discovery.FlightWindow
)

// addEchoes takes the round trips of one measuring.
func (r *roundTrips) addEchoes(ds []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.variation.Add(ds[0])
	r.echoes = appendRecent(r.echoes, ds)
}

// addLoopback takes the round trip of a packet.
func (r *roundTrips) addLoopback(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loopbacks = appendRecent(r.loopbacks, []time.Duration{d})
}

func appendRecent(all, more []time.Duration) []time.Duration {
	all = append(all, more...)
	return slices.Delete(all, 0, max(0, len(all)-roundTripWindow))
}

// clearLoopbacks has echoes stand in for a switch that gives no packets back any more.
func (r *roundTrips) clearLoopbacks() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loopbacks = nil
}

// median is the median of echoes, zero while there is none.
func (r *roundTrips) median() time.Duration {
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
	trips := r.loopbacks
	if len(trips) == 0 {
		trips = r.echoes
	}
	if len(trips) == 0 {
		return discovery.Control{}
	}
	return discovery.Control{RoundTrip: discovery.Shortest(trips, roundTripsPerProbe*discovery.RecentFlights), Jitter: r.variation.Mean()}
}

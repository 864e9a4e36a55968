package network

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
)

// roundTrips holds the latest round-trip times of a session.
type roundTrips struct {
	mu     sync.Mutex
	echoes []time.Duration
	// loopbacks holds the round-trip times of packets that the switch has sent back to the
	// controller. It is empty if the switch does not return packets.
	loopbacks []time.Duration
	variation discovery.Variation
}

const (
	// roundTripsPerProbe is the number of round trips that each probe measures. It is more than one,
	// because a busy machine that delays one of them need not delay the next.
	roundTripsPerProbe = 3
	// roundTripWindow is the number of round trips that are kept. It spans the same time as the
	// flights of probes that discovery keeps.
	roundTripWindow = roundTripsPerProbe * discovery.FlightWindow
)

// addEchoes adds the round trips of one probe.
func (r *roundTrips) addEchoes(ds []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.variation.Add(ds[0])
	r.echoes = appendRecent(r.echoes, ds)
}

// addLoopback adds the round trip of a packet that the switch has returned.
func (r *roundTrips) addLoopback(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loopbacks = appendRecent(r.loopbacks, []time.Duration{d})
}

// appendRecent appends round trips and drops the oldest beyond the window.
func appendRecent(all, more []time.Duration) []time.Duration {
	all = append(all, more...)
	return slices.Delete(all, 0, max(0, len(all)-roundTripWindow))
}

// clearLoopbacks removes the round trips of packets, so that echoes are used for a switch that no
// longer returns packets.
func (r *roundTrips) clearLoopbacks() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loopbacks = nil
}

// median returns the median of the echoes, or zero if there are none.
func (r *roundTrips) median() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.echoes) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.echoes))
	return sorted[(len(sorted)-1)/2]
}

// control returns the delays of the control connection, by which the latency of the switch's links
// is corrected. A link's latency is what remains of a probe's flight time after the delays of both
// switches, from their shortest round trips, are subtracted.
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

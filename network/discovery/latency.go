package discovery

import (
	"math"
	"slices"
	"time"
)

// Control is what is known of the controller's connection to a switch.
type Control struct {
	// RoundTrip is the Shortest of the latest round trips, zero while unknown.
	RoundTrip time.Duration
	// Jitter is that of the round trips.
	Jitter time.Duration
}

// FlightWindow is how many of a link's latest probes are remembered, and RecentFlights
// how many show that it has changed. Round trips should be remembered as long.
const (
	FlightWindow  = 32
	RecentFlights = 8
)

// indistinct is a difference that a busy machine makes as well as a link.
const indistinct = 500 * time.Microsecond

// Shortest is the shortest of times, or the shortest of the recent ones if that is
// longer by more than the machine can explain.
func Shortest(times []time.Duration, recent int) time.Duration {
	ever, lately := slices.Min(times), slices.Min(times[max(0, len(times)-recent):])
	if lately-ever > indistinct {
		return lately
	}
	return ever
}

// transit is what the flights of one link's probes tell. A busy machine makes a
// probe late and never early, so the shortest of some flights, less half of the
// shortest round trips, is what the link takes, even if most of them were held up.
type transit struct {
	flights   []time.Duration // the latest, the oldest first
	latency   float64         // nanoseconds, smoothed; 0 while unknown
	variation Variation
	jitter    float64 // nanoseconds
}

// add takes the flight of one more probe, which went down from the controller to
// one switch and up from the other. window is how many probes are smoothed over.
func (t *transit) add(flight time.Duration, down, up Control, window int) {
	if len(t.flights) == FlightWindow {
		t.flights = slices.Delete(t.flights, 0, 1)
	}
	t.flights = append(t.flights, flight)
	t.variation.Add(flight)
	if down.RoundTrip <= 0 || up.RoundTrip <= 0 {
		return
	}
	// The round trips vary; a short link's difference can come out negative.
	shortest := float64(max(Shortest(t.flights, RecentFlights)-down.RoundTrip/2-up.RoundTrip/2, time.Microsecond))
	// What the machine cannot explain was wrong before, or the link has become shorter.
	if t.latency == 0 || t.latency-shortest > float64(indistinct) {
		t.latency = shortest
	}
	t.latency += (shortest - t.latency) * 2 / float64(window+1)
	t.jitter = without(t.variation.mean, down.Jitter, up.Jitter)
}

// without takes the control connections' part off the jitter of flights. A flight
// has one way of each connection, and half of the variance of its round trips.
func without(jitter float64, down, up time.Duration) float64 {
	d, u := float64(down), float64(up)
	return math.Sqrt(max(0, jitter*jitter-(d*d+u*u)/2))
}

// Variation is the jitter of successive durations as RFC 3550 has it: the mean
// difference of two that follow each other, smoothed over sixteen. One that is late
// by far counts as late by a few times the usual, so that it is soon forgotten.
type Variation struct {
	last  time.Duration
	mean  float64 // nanoseconds
	begun bool
}

const (
	// outlier is how many times the usual a difference may count.
	outlier = 4
	// usual is the least difference that is taken for usual.
	usual = 250 * time.Microsecond
)

// Add takes the next duration.
func (v *Variation) Add(d time.Duration) {
	if v.begun {
		difference := math.Abs(float64(d - v.last))
		v.mean += (min(difference, outlier*max(v.mean, float64(usual))) - v.mean) / 16
	}
	v.last, v.begun = d, true
}

// Mean is the jitter so far.
func (v *Variation) Mean() time.Duration { return time.Duration(v.mean) }

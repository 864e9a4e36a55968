package discovery

import (
	"math"
	"slices"
	"time"
)

// Control holds the measured delays of the controller's connection to a switch.
type Control struct {
	// RoundTrip is the Shortest of the latest round trips, zero while unknown.
	RoundTrip time.Duration
	// Jitter is the jitter of the round trips.
	Jitter time.Duration
}

// FlightWindow is the number of a link's latest probes that are remembered. If the last
// RecentFlights of them all took longer than before, the link's latency has changed. Round trips
// should be remembered for the same time.
const (
	FlightWindow  = 32
	RecentFlights = 8
)

// machineNoise is the difference between two measurements of the same time that a busy machine can
// cause.
const machineNoise = 500 * time.Microsecond

// Shortest returns the shortest of the times, or the shortest of the recent ones if that is
// longer by more than machineNoise.
func Shortest(times []time.Duration, recent int) time.Duration {
	ever, lately := slices.Min(times), slices.Min(times[max(0, len(times)-recent):])
	if lately-ever > machineNoise {
		return lately
	}
	return ever
}

// latencyEstimate estimates a link's latency from the flight times of its probes. A busy machine
// delays probes and never speeds them up, so the shortest of several flights, less half of the
// shortest round trips, is the link's latency, even if most of the probes were delayed.
type latencyEstimate struct {
	flights   []time.Duration // the latest flight times, the oldest first
	latency   float64         // nanoseconds, smoothed; 0 while unknown
	variation Variation
	jitter    float64 // nanoseconds
}

// add adds the flight time of one more probe, which went from the controller to one switch and
// came back from the other. window is the number of probes over which the latency is smoothed.
func (t *latencyEstimate) add(flight time.Duration, down, up Control, window int) {
	if len(t.flights) == FlightWindow {
		t.flights = slices.Delete(t.flights, 0, 1)
	}
	t.flights = append(t.flights, flight)
	t.variation.Add(flight)
	if down.RoundTrip <= 0 || up.RoundTrip <= 0 {
		return
	}
	// Round trips vary, so the difference can be negative for a short link.
	shortest := float64(max(Shortest(t.flights, RecentFlights)-down.RoundTrip/2-up.RoundTrip/2, time.Microsecond))
	// A larger difference means that the estimate was wrong, or that the link has become
	// shorter.
	if t.latency == 0 || t.latency-shortest > float64(machineNoise) {
		t.latency = shortest
	}
	t.latency += (shortest - t.latency) * 2 / float64(window+1)
	t.jitter = subtractJitter(t.variation.mean, down.Jitter, up.Jitter)
}

// subtractJitter returns the jitter of flights without the control connections' part. A flight
// takes one direction of each connection, which has half of the variance of its round trips.
func subtractJitter(jitter float64, down, up time.Duration) float64 {
	d, u := float64(down), float64(up)
	return math.Sqrt(max(0, jitter*jitter-(d*d+u*u)/2))
}

// Variation computes the jitter of successive durations as in RFC 3550: the mean difference
// between two successive ones, smoothed over sixteen. An outlier is counted as a few times the
// mean, so that its effect ends soon.
type Variation struct {
	last    time.Duration
	mean    float64 // nanoseconds
	started bool
}

const (
	// maxDeviations is the number of times the mean to which a difference is limited.
	maxDeviations = 4
	// minDeviation is the least mean that is used for this limit.
	minDeviation = 250 * time.Microsecond
)

// Add adds the next duration.
func (v *Variation) Add(d time.Duration) {
	if v.started {
		difference := math.Abs(float64(d - v.last))
		v.mean += (min(difference, maxDeviations*max(v.mean, float64(minDeviation))) - v.mean) / 16
	}
	v.last, v.started = d, true
}

// Mean returns the jitter so far.
func (v *Variation) Mean() time.Duration { return time.Duration(v.mean) }

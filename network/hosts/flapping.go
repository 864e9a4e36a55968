package hosts

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// flapPeriod is the period over which the moves of a host are counted.
const flapPeriod = 10 * time.Minute

// FlappingHost describes how often a host has moved, or was claimed to have moved. Elsewhere is the
// last other port, Times the number of moves and claims, and Since the start of the count.
type FlappingHost struct {
	Host      topology.Host
	Elsewhere topology.PortRef
	Times     int
	Since     time.Time
}

// flapCounter counts the moves of one host, claimed ones included.
type flapCounter struct {
	elsewhere topology.PortRef
	times     int
	since     time.Time
}

// countFlap counts that a host has moved, or was claimed to have moved. The mutex is held.
func (e *entry) countFlap(at topology.PortRef, now time.Time) {
	if e.flapping == nil || now.Sub(e.flapping.since) > flapPeriod {
		e.flapping = &flapCounter{since: now}
	}
	e.flapping.times++
	e.flapping.elsewhere = at
}

// Flapping returns the hosts that have moved, or were claimed to have moved, at least the given
// number of times within ten minutes.
func (t *Table) Flapping(times int, now time.Time) (out []FlappingHost) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.places.all() {
		if r := e.flapping; r != nil && r.times >= times && now.Sub(r.since) <= flapPeriod {
			out = append(out, FlappingHost{Host: e.host(), Elsewhere: r.elsewhere, Times: r.times, Since: r.since})
		}
	}
	return out
}

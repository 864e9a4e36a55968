package hosts

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// restlessSpan is over how long it is counted how often a host is said to be elsewhere.
const restlessSpan = 10 * time.Minute

// Restless says how often a host has moved, or has been said to be elsewhere without
// having moved: where last, and since when it is counted.
type Restless struct {
	Host      topology.Host
	Elsewhere topology.PortRef
	Times     int
	Since     time.Time
}

// restless is what is counted of one host.
type restless struct {
	elsewhere topology.PortRef
	times     int
	since     time.Time
}

// noteElsewhere counts that a host is said to be elsewhere; the mutex is held.
func (e *entry) noteElsewhere(at topology.PortRef, now time.Time) {
	if e.restless == nil || now.Sub(e.restless.since) > restlessSpan {
		e.restless = &restless{since: now}
	}
	e.restless.times++
	e.restless.elsewhere = at
}

// Restless lists the hosts that have been said to be elsewhere so often within ten
// minutes.
func (t *Table) Restless(times int, now time.Time) (out []Restless) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.places.all() {
		if r := e.restless; r != nil && r.times >= times && now.Sub(r.since) <= restlessSpan {
			out = append(out, Restless{Host: e.host(), Elsewhere: r.elsewhere, Times: r.times, Since: r.since})
		}
	}
	return out
}

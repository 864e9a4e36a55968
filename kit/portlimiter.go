package kit

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/sources"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// maxLimited bounds the ports, and the switches, for which a PortLimiter keeps a token bucket each.
const maxLimited = 4096

// EventRate is the rate and size of a token bucket.
type EventRate struct {
	PerSecond float64
	Burst     int
}

// PortLimits holds the rates of events that the packets of one port, of all ports of one switch, and
// of all switches may cause.
type PortLimits struct{ Port, Switch, All EventRate }

// PortLimiter limits the events that packets cause, so that a port or switch that sends very many
// packets does not use up the share of the others. If more than 4,096 ports or switches send at one
// time, the rest share the rate of one port. Its methods may be called concurrently.
type PortLimiter struct {
	mu          sync.Mutex
	ports       sources.Table[network.PortRef, rate.Limiter]
	switches    sources.Table[openflow.DatapathID, rate.Limiter]
	others, all *rate.Limiter
	latest      time.Time // the latest arrival
}

// NewPortLimiter returns a limiter that has seen no packet.
func NewPortLimiter(l PortLimits) *PortLimiter {
	limiter := func(r EventRate) func() *rate.Limiter {
		return func() *rate.Limiter { return rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst) }
	}
	// A bucket that has been unused for as long as it takes to fill is the same as a new one.
	full := func(r EventRate) time.Duration {
		return time.Duration(float64(r.Burst)/r.PerSecond*float64(time.Second)) + time.Second
	}
	return &PortLimiter{
		ports:    sources.Table[network.PortRef, rate.Limiter]{New: limiter(l.Port), Most: maxLimited, ForgetAfter: full(l.Port)},
		switches: sources.Table[openflow.DatapathID, rate.Limiter]{New: limiter(l.Switch), Most: maxLimited, ForgetAfter: full(l.Switch)},
		others:   limiter(l.Port)(), all: limiter(l.All)(),
	}
}

// Allow reports whether a packet that arrived at a port may cause one more event, and counts it.
func (l *PortLimiter) Allow(at network.PortRef, arrived time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if arrived.Before(l.latest) {
		arrived = l.latest // packets of several switches arrive out of order; time must not count twice
	}
	l.latest = arrived
	return cmp.Or(l.ports.Find(at, arrived), l.others).AllowN(arrived, 1) &&
		cmp.Or(l.switches.Find(at.Switch, arrived), l.others).AllowN(arrived, 1) && l.all.AllowN(arrived, 1)
}

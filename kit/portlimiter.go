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

// maxLimited bounds the ports and switches that a PortLimiter counts by themselves.
const maxLimited = 4096

// EventRate is a rate of events: so many in each second, after so many at once.
type EventRate struct {
	PerSecond float64
	Burst     int
}

// PortLimits are the rates of what packets may cause: those that arrive at one port, at all ports
// of one switch, and at all switches.
type PortLimits struct{ Port, Switch, All EventRate }

// PortLimiter limits what packets cause, so that a port or a switch that sends very many leaves
// the turns of the others to them. Of more than 4,096 ports or switches that send at one time, the
// rest share the rate of one port. Its methods may be called from several goroutines.
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
	// A limiter that nobody has used for as long as it takes to be full again is forgotten.
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
		arrived = l.latest // another switch's packet was later; the time between must not count twice
	}
	l.latest = arrived
	return cmp.Or(l.ports.Find(at, arrived), l.others).AllowN(arrived, 1) &&
		cmp.Or(l.switches.Find(at.Switch, arrived), l.others).AllowN(arrived, 1) && l.all.AllowN(arrived, 1)
}

package kit

import (
	"cmp"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/sources"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// These bound the placings a second that packets may cause: those of one port, of one switch, and all.
const placedEach, placedOfSwitch, placedAll = 1000, 2500, 10_000

const (
	// maxCounted bounds the ports and switches that have limiters; further ones share one.
	maxCounted = 4096
	// forgetCounted is how long the limiter of a silent port or switch is kept.
	forgetCounted = 2 * time.Second
)

// rates limits the placings that packets cause. It is not safe for concurrent use.
type rates struct {
	ports       sources.Table[network.PortRef, rate.Limiter]
	switches    sources.Table[openflow.DatapathID, rate.Limiter]
	others, all *rate.Limiter
	now         time.Time // the latest arrival of a packet
}

func newRates() rates {
	limiter := func(each int) func() *rate.Limiter {
		return func() *rate.Limiter { return rate.NewLimiter(rate.Limit(each), each) }
	}
	return rates{
		ports:    sources.Table[network.PortRef, rate.Limiter]{New: limiter(placedEach), Most: maxCounted, ForgetAfter: forgetCounted},
		switches: sources.Table[openflow.DatapathID, rate.Limiter]{New: limiter(placedOfSwitch), Most: maxCounted, ForgetAfter: forgetCounted},
		others:   limiter(placedEach)(), all: limiter(placedAll)(),
	}
}

// allow reports whether a packet from a port may cause a placing, and counts it.
func (r *rates) allow(at network.PortRef, now time.Time) bool {
	if now.Before(r.now) {
		now = r.now // another switch's packet was later; its time must not count twice
	}
	r.now = now
	return cmp.Or(r.ports.Find(at, now), r.others).AllowN(now, 1) &&
		cmp.Or(r.switches.Find(at.Switch, now), r.others).AllowN(now, 1) && r.all.AllowN(now, 1)
}

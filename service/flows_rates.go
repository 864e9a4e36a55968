package service

import (
	"cmp"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/sources"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// How often in a second packets from one port may have a flow placed, those of one switch, and all.
const placedEach, placedOfSwitch, placedAll = 1000, 2500, 10_000

const (
	// maxCounted bounds the ports and switches that are counted; others share one limit.
	maxCounted = 4096
	// forgetCounted is when nothing has to be remembered of one from which nothing comes.
	forgetCounted = 2 * time.Second
)

// rates bounds how often packets have flows placed. It may not be used by two goroutines at once.
type rates struct {
	ports       sources.Table[network.PortRef, rate.Limiter]
	switches    sources.Table[openflow.DatapathID, rate.Limiter]
	others, all *rate.Limiter
	now         time.Time // the latest that a packet has come with
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

// allow reports whether a packet from a port may have a flow placed, and counts it.
func (r *rates) allow(at network.PortRef, now time.Time) bool {
	if now.Before(r.now) {
		now = r.now // of another switch; or the time between would count again
	}
	r.now = now
	return cmp.Or(r.ports.Find(at, now), r.others).AllowN(now, 1) &&
		cmp.Or(r.switches.Find(at.Switch, now), r.others).AllowN(now, 1) && r.all.AllowN(now, 1)
}

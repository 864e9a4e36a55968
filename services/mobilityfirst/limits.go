package mobilityfirst

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/sources"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// What the hosts behind one port may have the controller do in a second, those of one switch a quarter of
// what all may, and all together: take what they
// say, look at signatures, tell others, lead a request to further places, and tell everybody.
const (
	asksEach, asksAll             = 2000, 20_000
	signaturesEach, signaturesAll = 50, 2000
	toldEach, toldAll             = 4000, 20_000
	leadsEach, leadsAll           = 4000, 20_000
	floodsEach, floodsAll         = 200, 1000
	// signaturesAtOnce are those of all names that may be behind a port.
	signaturesAtOnce = maxNamesAt
	// maxPorts bounds the ports that are counted; more share what one may do.
	maxPorts = 4096
	// forgetPort is when nothing needs to be remembered of a port: hosts say hello every 10 s.
	forgetPort = 30 * time.Second
)

// limits count what the hosts behind each port, and of each switch, have the controller do.
type limits struct {
	mu          sync.Mutex
	ports       sources.Table[network.PortRef, counted]
	switches    sources.Table[openflow.DatapathID, counted]
	others, all *counted
	now         time.Time // the latest that anybody has come with
}

type counted struct{ asks, signatures, told, leads, floods *rate.Limiter }

func count(asks, signatures, atOnce, told, leads, floods int) func() *counted {
	one := func(each, atOnce int) *rate.Limiter { return rate.NewLimiter(rate.Limit(each), atOnce) }
	return func() *counted {
		return &counted{one(asks, asks), one(signatures, atOnce), one(told, told), one(leads, leads), one(floods, floods)}
	}
}

func newLimits() *limits {
	port := count(asksEach, signaturesEach, signaturesAtOnce, toldEach, leadsEach, floodsEach)
	ofSwitch := count(asksAll/4, signaturesAll/4, signaturesAll/4, toldAll/4, leadsAll/4, floodsAll/4)
	return &limits{
		ports:    sources.Table[network.PortRef, counted]{New: port, Most: maxPorts, ForgetAfter: forgetPort},
		switches: sources.Table[openflow.DatapathID, counted]{New: ofSwitch, Most: maxPorts, ForgetAfter: forgetPort},
		others:   port(),
		all:      count(asksAll, signaturesAll, signaturesAll, toldAll, leadsAll, floodsAll)(),
	}
}

func (l *limits) may(at network.PortRef, now time.Time, which func(*counted) *rate.Limiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.After(l.now) {
		l.now = now
	}
	now = l.now // whoever comes later with an earlier time would have the time between count again
	for _, c := range []*counted{cmp.Or(l.ports.Find(at, now), l.others), cmp.Or(l.switches.Find(at.Switch, now), l.others), l.all} {
		if !which(c).AllowN(now, 1) {
			return false
		}
	}
	return true
}

// mayAsk says whether one more frame from a port is taken.
func (l *limits) mayAsk(at network.PortRef, now time.Time) bool {
	return l.may(at, now, func(c *counted) *rate.Limiter { return c.asks })
}

// mayVerify says whether one more signature is looked at.
func (l *limits) mayVerify(at network.PortRef, now time.Time) bool {
	return l.may(at, now, func(c *counted) *rate.Limiter { return c.signatures })
}

// mayTell says whether one more host is told what was heard from a port.
func (l *limits) mayTell(at network.PortRef, now time.Time) bool {
	return l.may(at, now, func(c *counted) *rate.Limiter { return c.told })
}

// mayLead says whether a request from a port is led to one more place than the first.
func (l *limits) mayLead(at network.PortRef, now time.Time) bool {
	return l.may(at, now, func(c *counted) *rate.Limiter { return c.leads })
}

// mayFlood says whether one more request from a port goes to everybody.
func (l *limits) mayFlood(at network.PortRef, now time.Time) bool {
	return l.may(at, now, func(c *counted) *rate.Limiter { return c.floods })
}

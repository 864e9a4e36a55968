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

// Limits per second on the work that hosts cause, for one port and in total; the hosts behind one
// switch may cause a quarter of the total. They limit frames, signature checks, notifications of
// other hosts, requests forwarded to further places, and floods to all hosts.
const (
	framesPerPort, framesTotal               = 2000, 20_000
	signaturesPerPort, signaturesTotal       = 50, 2000
	notificationsPerPort, notificationsTotal = 4000, 20_000
	forwardsPerPort, forwardsTotal           = 4000, 20_000
	floodsPerPort, floodsTotal               = 200, 1000
	// signatureBurst allows every name that may be behind a port to have its signature checked at
	// once.
	signatureBurst = maxPlacesPerPort
	// maxPorts limits the ports with limiters of their own; further ports share those of one port.
	maxPorts = 4096
	// forgetPort is how long the limiters of an unused port are kept. Hosts say hello every 10 s.
	forgetPort = 30 * time.Second
)

// limits limits the work that the hosts behind each port, and all hosts of each switch, may cause
// per second.
type limits struct {
	mu            sync.Mutex
	ports         sources.Table[network.PortRef, limiters]
	switches      sources.Table[openflow.DatapathID, limiters]
	overflow, all *limiters
	latest        time.Time // the latest time of any call
}

type limiters struct{ frames, signatures, notifications, forwards, floods *rate.Limiter }

func limitersOf(frames, signatures, burst, notifications, forwards, floods int) func() *limiters {
	one := func(perSecond, burst int) *rate.Limiter { return rate.NewLimiter(rate.Limit(perSecond), burst) }
	return func() *limiters {
		return &limiters{one(frames, frames), one(signatures, burst), one(notifications, notifications), one(forwards, forwards), one(floods, floods)}
	}
}

func newLimits() *limits {
	port := limitersOf(framesPerPort, signaturesPerPort, signatureBurst, notificationsPerPort, forwardsPerPort, floodsPerPort)
	ofSwitch := limitersOf(framesTotal/4, signaturesTotal/4, signaturesTotal/4, notificationsTotal/4, forwardsTotal/4, floodsTotal/4)
	return &limits{
		ports:    sources.Table[network.PortRef, limiters]{New: port, Most: maxPorts, ForgetAfter: forgetPort},
		switches: sources.Table[openflow.DatapathID, limiters]{New: ofSwitch, Most: maxPorts, ForgetAfter: forgetPort},
		overflow: port(),
		all:      limitersOf(framesTotal, signaturesTotal, signaturesTotal, notificationsTotal, forwardsTotal, floodsTotal)(),
	}
}

func (l *limits) allow(at network.PortRef, now time.Time, which func(*limiters) *rate.Limiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.After(l.latest) {
		l.latest = now
	}
	now = l.latest // with an earlier time the limiters would add the tokens of the time between again
	for _, c := range []*limiters{cmp.Or(l.ports.Find(at, now), l.overflow), cmp.Or(l.switches.Find(at.Switch, now), l.overflow), l.all} {
		if !which(c).AllowN(now, 1) {
			return false
		}
	}
	return true
}

// allowFrame reports whether one more frame from a port may be handled.
func (l *limits) allowFrame(at network.PortRef, now time.Time) bool {
	return l.allow(at, now, func(c *limiters) *rate.Limiter { return c.frames })
}

// allowSignature reports whether one more signature may be checked for a port.
func (l *limits) allowSignature(at network.PortRef, now time.Time) bool {
	return l.allow(at, now, func(c *limiters) *rate.Limiter { return c.signatures })
}

// allowNotification reports whether one more host may be notified of a message from a port.
func (l *limits) allowNotification(at network.PortRef, now time.Time) bool {
	return l.allow(at, now, func(c *limiters) *rate.Limiter { return c.notifications })
}

// allowForward reports whether a request from a port may be forwarded to one more place than the
// first.
func (l *limits) allowForward(at network.PortRef, now time.Time) bool {
	return l.allow(at, now, func(c *limiters) *rate.Limiter { return c.forwards })
}

// allowFlood reports whether one more request from a port may be broadcast.
func (l *limits) allowFlood(at network.PortRef, now time.Time) bool {
	return l.allow(at, now, func(c *limiters) *rate.Limiter { return c.floods })
}

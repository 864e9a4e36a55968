package mobilityfirst

import "github.com/sluice-net/sluice/kit"

// These constants limit the work that hosts cause per second, for one port and in total; the hosts
// behind one switch may cause a quarter of the total. They limit frames, signature checks,
// notifications of other hosts, requests forwarded to further places, and floods to all hosts.
const (
	framesPerPort, framesTotal               = 2000, 20_000
	signaturesPerPort, signaturesTotal       = 50, 2000
	notificationsPerPort, notificationsTotal = 4000, 20_000
	forwardsPerPort, forwardsTotal           = 4000, 20_000
	floodsPerPort, floodsTotal               = 200, 1000
	// signatureBurst allows every name that may be behind a port to have its signature checked at
	// once.
	signatureBurst = maxPlacesPerPort
)

// eventLimits limits the published events about names. The hosts of one port and of one switch have
// shares, so that the events about other hosts are still published.
var eventLimits = kit.PortLimits{
	Port:   kit.EventRate{PerSecond: 1, Burst: 32},
	Switch: kit.EventRate{PerSecond: 5, Burst: 64},
	All:    kit.EventRate{PerSecond: 20, Burst: 256},
}

// limits limits the work that the hosts behind each port, and all hosts of each switch, may cause
// per second: frames that are handled, signatures that are checked, hosts that are notified,
// further places that a request is forwarded to, requests that are broadcast, and events that are
// published.
type limits struct {
	frames, signatures, notifications, forwards, floods, events *kit.PortLimiter
}

func newLimits() limits {
	limiter := func(perPort, burst, total int) *kit.PortLimiter {
		rate := func(perSecond, burst int) kit.EventRate {
			return kit.EventRate{PerSecond: float64(perSecond), Burst: burst}
		}
		return kit.NewPortLimiter(kit.PortLimits{Port: rate(perPort, burst), Switch: rate(total/4, total/4), All: rate(total, total)})
	}
	return limits{
		frames:        limiter(framesPerPort, framesPerPort, framesTotal),
		signatures:    limiter(signaturesPerPort, signatureBurst, signaturesTotal),
		notifications: limiter(notificationsPerPort, notificationsPerPort, notificationsTotal),
		forwards:      limiter(forwardsPerPort, forwardsPerPort, forwardsTotal),
		floods:        limiter(floodsPerPort, floodsPerPort, floodsTotal),
		events:        kit.NewPortLimiter(eventLimits),
	}
}

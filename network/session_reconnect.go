package network

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// reconnectLimiter holds back switches that come and go: each coming costs every other switch
// something, since the network is another with it. A session that lasts costs nothing,
// however many come at once; one that does not lets the next one wait, of that switch
// and, where a machine makes up switches, of its address. Switches that the configuration
// tells of do not wait for others of their address, and no switch for one elsewhere that
// calls itself the same.
type reconnectLimiter struct {
	mu        sync.Mutex
	switches  map[reconnectKey]tokenBucket
	addresses map[netip.Addr]tokenBucket
}

// reconnectKey is a switch and where it comes from.
type reconnectKey struct {
	dpid openflow.DatapathID
	addr netip.Addr
}

const (
	// stableAfter is a session that has cost nobody anything.
	stableAfter = 10 * time.Second
	// A switch may have so many short sessions at once and one more each interval; an
	// address has more, for all its switches.
	switchBurst, switchInterval   = 5, time.Second
	addressBurst, addressInterval = 64, 125 * time.Millisecond
	// maxReconnectDelay is how long a connection is held; one that would have to wait for
	// longer is closed.
	maxReconnectDelay = 5 * time.Second
	// maxReconnectDebt bounds what may be owed: what came and went for another reason, as all
	// switches behind a link that failed again and again, is let in again by then.
	maxReconnectDebt = time.Minute
	// maxReconnectEntries bounds what is remembered, of switches and of addresses.
	maxReconnectEntries = 4096
)

// delay is how long a switch has to wait before its session begins.
func (r *reconnectLimiter) delay(d openflow.DatapathID, a netip.Addr, named bool, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := r.switches[reconnectKey{d, a}].wait((switchBurst-1)*switchInterval, now)
	if !named {
		wait = max(wait, r.addresses[a].wait((addressBurst-1)*addressInterval, now))
	}
	return wait
}

// sessionEnded notes that a session has.
func (r *reconnectLimiter) sessionEnded(d openflow.DatapathID, a netip.Addr, lasted time.Duration, now time.Time) {
	if lasted >= stableAfter {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.switches = chargeReconnect(r.switches, reconnectKey{d, a}, switchInterval, now)
	r.addresses = chargeReconnect(r.addresses, a, addressInterval, now)
}

// chargeReconnect adds to what somebody owes, if there is room to remember it.
func chargeReconnect[K comparable](m map[K]tokenBucket, who K, t time.Duration, now time.Time) map[K]tokenBucket {
	if m == nil {
		m = map[K]tokenBucket{}
	}
	if _, known := m[who]; !known && len(m) >= maxReconnectEntries {
		maps.DeleteFunc(m, func(_ K, d tokenBucket) bool { return d.wait(0, now) == 0 })
		if len(m) >= maxReconnectEntries {
			return m
		}
	}
	d := m[who]
	if d.wait(maxReconnectDebt-t, now) == 0 {
		d.consume(t, now)
	}
	m[who] = d
	return m
}

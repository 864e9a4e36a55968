package network

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// reconnectLimiter delays switches that connect and disconnect repeatedly, because each time the
// network changes and all other switches need updates. Only short sessions are charged, however
// many begin at once. A short session is charged to the switch and to its address, since one
// machine can make up many switches. Switches that the configuration names do not wait because of
// others at their address, and no switch waits because of one at another address that uses the same
// identifier.
type reconnectLimiter struct {
	mu        sync.Mutex
	switches  map[reconnectKey]tokenBucket
	addresses map[netip.Addr]tokenBucket
}

// reconnectKey is a switch and the address it connects from.
type reconnectKey struct {
	dpid openflow.DatapathID
	addr netip.Addr
}

const (
	// stableAfter is the duration from which a session no longer counts as short. Only short
	// sessions are charged.
	stableAfter = 10 * time.Second
	// A switch may have switchBurst short sessions at once, and one more in each switchInterval. All
	// switches at one address together may have addressBurst, and one more in each addressInterval.
	switchBurst, switchInterval   = 5, time.Second
	addressBurst, addressInterval = 64, 125 * time.Millisecond
	// maxReconnectDelay is how long a connection is kept waiting. One that would have to wait
	// longer is closed.
	maxReconnectDelay = 5 * time.Second
	// maxReconnectDebt bounds the delay that short sessions can build up. Switches that
	// reconnected for another reason, such as a shared link that failed repeatedly, are let in
	// again after that time.
	maxReconnectDebt = time.Minute
	// maxReconnectEntries is the number of switches, and of addresses, that are remembered.
	maxReconnectEntries = 4096
)

// delay returns how long a switch has to wait before its session begins.
func (r *reconnectLimiter) delay(d openflow.DatapathID, a netip.Addr, configured bool, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := r.switches[reconnectKey{d, a}].wait((switchBurst-1)*switchInterval, now)
	if !configured {
		wait = max(wait, r.addresses[a].wait((addressBurst-1)*addressInterval, now))
	}
	return wait
}

// sessionEnded charges a session that has ended, if it was short.
func (r *reconnectLimiter) sessionEnded(d openflow.DatapathID, a netip.Addr, lasted time.Duration, now time.Time) {
	if lasted >= stableAfter {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.switches = chargeReconnect(r.switches, reconnectKey{d, a}, switchInterval, now)
	r.addresses = chargeReconnect(r.addresses, a, addressInterval, now)
}

// chargeReconnect charges cost to the token bucket of key, and returns m. It creates a bucket that
// does not exist yet, if there is room for it.
func chargeReconnect[K comparable](m map[K]tokenBucket, key K, cost time.Duration, now time.Time) map[K]tokenBucket {
	if m == nil {
		m = map[K]tokenBucket{}
	}
	if _, ok := m[key]; !ok && len(m) >= maxReconnectEntries {
		maps.DeleteFunc(m, func(_ K, bucket tokenBucket) bool { return bucket.wait(0, now) == 0 })
		if len(m) >= maxReconnectEntries {
			return m
		}
	}
	bucket := m[key]
	if bucket.wait(maxReconnectDebt-cost, now) == 0 {
		bucket.consume(cost, now)
	}
	m[key] = bucket
	return m
}

package network

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// tokenBucket is a token bucket, stored as the time at which it will be full again. The zero value
// is a full bucket.
type tokenBucket struct{ fullAt time.Time }

// consume takes tokens, counted in the time that it takes to refill them.
func (d *tokenBucket) consume(cost time.Duration, now time.Time) {
	if d.fullAt.Before(now) {
		d.fullAt = now
	}
	d.fullAt = d.fullAt.Add(cost)
}

// wait returns how long it takes until the bucket lacks no more than tolerance.
func (d tokenBucket) wait(tolerance time.Duration, now time.Time) time.Duration {
	if !d.fullAt.After(now) {
		return 0 // the zero time is further back than a duration can hold
	}
	return max(d.fullAt.Sub(now)-tolerance, 0)
}

// rate allows a burst, and one more event in each interval.
type rate struct {
	burst    int
	interval time.Duration
}

// tolerance returns how much a bucket may lack, as the time to refill it, for one more event to be
// allowed.
func (r rate) tolerance() time.Duration { return time.Duration(r.burst-1) * r.interval }

// switchLimiter bounds the rate of events that switches cause and that burden others. There is a
// bound for each switch, and one for all together. A switch that has caused no event recently may
// cause one even if the others have used up the common bound.
type switchLimiter struct {
	perSwitch, overall rate

	mu       sync.Mutex
	shared   tokenBucket
	switches map[openflow.DatapathID]tokenBucket // those whose buckets are not full, or were not recently
}

// allow counts an event that a switch causes, and reports whether it is within the limits.
func (b *switchLimiter) allow(d openflow.DatapathID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, full := b.switches[d], b.shared.wait(b.overall.tolerance(), now) > 0
	if own.wait(b.perSwitch.tolerance(), now) > 0 || full && own.wait(0, now) > 0 {
		return false
	}
	own.consume(b.perSwitch.interval, now)
	if !full {
		b.shared.consume(b.overall.interval, now)
	}
	b.prune(now)
	if b.switches == nil {
		b.switches = map[openflow.DatapathID]tokenBucket{}
	}
	b.switches[d] = own
	return true
}

// pruneThreshold is the number of buckets from which full ones are dropped.
const pruneThreshold = 256

// prune drops full buckets once there are many. A bucket that is not full belongs to a switch that
// has caused events recently, so the number of switches bounds that of the remaining buckets. The
// mutex is held.
func (b *switchLimiter) prune(now time.Time) {
	if len(b.switches) < pruneThreshold {
		return
	}
	for d, own := range b.switches {
		if own.wait(0, now) == 0 {
			delete(b.switches, d)
		}
	}
}

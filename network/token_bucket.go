package network

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// tokenBucket is what somebody has taken in advance, in time: it is made up for as time passes.
// (A token bucket, told by when it will be full.)
type tokenBucket struct{ fullAt time.Time }

// consume lets it grow.
func (d *tokenBucket) consume(cost time.Duration, now time.Time) {
	if d.fullAt.Before(now) {
		d.fullAt = now
	}
	d.fullAt = d.fullAt.Add(cost)
}

// wait is how long it takes until no more than this is owed.
func (d tokenBucket) wait(tolerance time.Duration, now time.Time) time.Duration {
	if !d.fullAt.After(now) {
		return 0 // of what never was, the time since is beyond what a duration holds
	}
	return max(d.fullAt.Sub(now)-tolerance, 0)
}

// rate is so many at once, and one more each interval.
type rate struct {
	burst    int
	interval time.Duration
}

// tolerance is the debt with which one more may be had.
func (r rate) tolerance() time.Duration { return time.Duration(r.burst-1) * r.interval }

// switchLimiter is what switches may cause of something that others have to bear. Each has a rate,
// and all together have one; who has caused nothing lately may cause one whatever others do.
type switchLimiter struct {
	perSwitch, overall rate

	mu       sync.Mutex
	shared   tokenBucket
	switches map[openflow.DatapathID]tokenBucket // who owes something, or did a moment ago
}

// allow counts one more that a switch causes, unless it is one too many.
func (b *switchLimiter) allow(by openflow.DatapathID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, full := b.switches[by], b.shared.wait(b.overall.tolerance(), now) > 0
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
	b.switches[by] = own
	return true
}

// pruneThreshold is from how many switches on those are forgotten that owe nothing.
const pruneThreshold = 256

// prune drops who owes nothing any more, once they are many; the mutex is held. Who owes
// something has caused something within its burst, so they are as many as may be connected.
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

package network

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// debt is what somebody has taken in advance, in time: it is made up for as time passes.
// (A token bucket, told by when it will be full.)
type debt struct{ until time.Time }

// add lets it grow.
func (d *debt) add(t time.Duration, now time.Time) {
	if d.until.Before(now) {
		d.until = now
	}
	d.until = d.until.Add(t)
}

// beyond is how long it takes until no more than this is owed.
func (d debt) beyond(allowed time.Duration, now time.Time) time.Duration {
	if !d.until.After(now) {
		return 0 // of what never was, the time since is beyond what a duration holds
	}
	return max(d.until.Sub(now)-allowed, 0)
}

// rate is so many at once, and one more each interval.
type rate struct {
	burst    int
	interval time.Duration
}

// allows is the debt with which one more may be had.
func (r rate) allows() time.Duration { return time.Duration(r.burst-1) * r.interval }

// budget is what switches may cause of something that others have to bear. Each has a rate,
// and all together have one; who has caused nothing lately may cause one whatever others do.
type budget struct {
	each, all rate

	mu       sync.Mutex
	total    debt
	switches map[openflow.DatapathID]debt // who owes something, or did a moment ago
}

// take counts one more that a switch causes, unless it is one too many.
func (b *budget) take(by openflow.DatapathID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, full := b.switches[by], b.total.beyond(b.all.allows(), now) > 0
	if own.beyond(b.each.allows(), now) > 0 || full && own.beyond(0, now) > 0 {
		return false
	}
	own.add(b.each.interval, now)
	if !full {
		b.total.add(b.all.interval, now)
	}
	b.forget(now)
	if b.switches == nil {
		b.switches = map[openflow.DatapathID]debt{}
	}
	b.switches[by] = own
	return true
}

// maxInDebt is from how many switches on those are forgotten that owe nothing.
const maxInDebt = 256

// forget drops who owes nothing any more, once they are many; the mutex is held. Who owes
// something has caused something within its burst, so they are as many as may be connected.
func (b *budget) forget(now time.Time) {
	if len(b.switches) < maxInDebt {
		return
	}
	for d, own := range b.switches {
		if own.beyond(0, now) == 0 {
			delete(b.switches, d)
		}
	}
}

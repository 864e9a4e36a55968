package network

import "time"

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

package network

import (
	"testing"
	"time"
)

// TestComparisonSchedule checks when a switch is compared: at the interval, at once after a removal,
// and later the more often something deviates, or the longer a comparison takes.
func TestComparisonSchedule(t *testing.T) {
	start := time.Unix(1000, 0)
	const interval = 30 * time.Second
	after := func(c *comparisonSchedule, from time.Time) time.Duration {
		t.Helper()
		at, ok := c.next()
		if !ok {
			t.Fatal("no comparison follows")
		}
		return at.Sub(from)
	}
	c := comparisonSchedule{interval: interval}
	c.start(start, 0.5)
	if got := after(&c, start); got != interval/2 {
		t.Errorf("the first comparison is after %v, want half of the interval", got)
	}
	c.finished(start, start, false, false)
	if got := after(&c, start); got != interval {
		t.Errorf("the next comparison is after %v, want %v", got, interval)
	}
	now := start.Add(time.Second)
	if c.requested = true; after(&c, now) > 0 {
		t.Error("a comparison after a removal waits, want it at once")
	}
	want := minRepairPause
	for range 20 { // the rule is removed as soon as it is written again
		if pause := c.finished(now, now, true, false); pause != want {
			t.Errorf("the back-off is %v, want %v", pause, want)
		}
		c.requested = true
		if got := after(&c, now); got != min(want, interval) {
			t.Errorf("the next repair is after %v, want %v", got, want)
		}
		now, want = now.Add(want), min(2*want, maxRepairPause)
	}
	now = now.Add(10 * maxRepairPause)
	if pause := c.finished(now, now, false, false); pause != 0 {
		t.Errorf("long after the last deviation the back-off is %v, want none", pause)
	}
	if pause := c.finished(now, now, true, false); pause != minRepairPause {
		t.Errorf("the back-off begins anew with %v, want %v", pause, minRepairPause)
	}
	slow := now.Add(4 * time.Second)
	c.requested = false
	c.finished(now, slow, false, false)
	if got, want := after(&c, slow), comparisonShare*4*time.Second; got != want {
		t.Errorf("a switch that took 4 s is compared again after %v, want %v", got, want)
	}
	c.finished(slow, slow.Add(time.Second), false, true)
	if got, want := after(&c, slow.Add(time.Second)), comparisonShare*time.Second; got != want {
		t.Errorf("a failed comparison is repeated after %v, want %v", got, want)
	}
}

// TestNoSteadyComparison checks that without an interval only removals cause comparisons.
func TestNoSteadyComparison(t *testing.T) {
	c, now := comparisonSchedule{interval: -1}, time.Unix(1000, 0)
	c.start(now, 0.5)
	if at, ok := c.next(); ok {
		t.Errorf("a comparison is due at %v, want none", at)
	}
	c.requested = true
	if _, ok := c.next(); !ok {
		t.Error("a removal causes no comparison")
	}
	c.finished(now, now, true, false)
	if at, ok := c.next(); ok {
		t.Errorf("another comparison is due at %v, want none", at)
	}
}

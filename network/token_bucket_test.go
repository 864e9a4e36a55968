package network

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// TestSwitchLimiterIsShared checks the rate of one switch, the rate of all, and that a switch
// which has caused nothing recently may cause one event whatever the others do.
func TestSwitchLimiterIsShared(t *testing.T) {
	now := time.Now()
	b := switchLimiter{perSwitch: rate{burst: 3, interval: time.Second}, overall: rate{burst: 5, interval: 500 * time.Millisecond}}
	take := func(by openflow.DatapathID, tries int, at time.Time) (taken int) {
		for range tries {
			if b.allow(by, at) {
				taken++
			}
		}
		return taken
	}
	for _, c := range []struct {
		by   openflow.DatapathID
		at   time.Duration
		want int
		why  string
	}{
		{1, 0, 3, "its burst"},
		{2, 0, 2, "what is left of all"},
		{3, 0, 1, "its first, beyond what is left"},
		{1, time.Second, 1, "one more each interval"},
		{2, time.Second, 1, "the other of two intervals of all"},
		{1, time.Minute, 3, "its burst again"},
	} {
		if got := take(c.by, 1000, now.Add(c.at)); got != c.want {
			t.Errorf("switch %v took %d after %v, want %d: %s", c.by, got, c.at, c.want, c.why)
		}
	}
	for d := range openflow.DatapathID(10 * pruneThreshold) {
		b.allow(d, now.Add(time.Duration(d)*time.Hour))
	}
	if n := len(b.switches); n > pruneThreshold {
		t.Errorf("%d switches are remembered that owe nothing", n)
	}
}

func TestTokenBucket(t *testing.T) {
	now := time.Unix(1000, 0)
	var d tokenBucket
	if w := d.wait(time.Second, now); w != 0 {
		t.Errorf("nobody owes anything, and %v are to wait", w)
	}
	for range 3 {
		d.consume(time.Second, now)
	}
	for _, c := range []struct{ allowed, later, want time.Duration }{
		{0, 0, 3 * time.Second}, {2 * time.Second, 0, time.Second}, {2 * time.Second, time.Second, 0}, {0, time.Hour, 0},
	} {
		if w := d.wait(c.allowed, now.Add(c.later)); w != c.want {
			t.Errorf("%v allowed, %v later: %v, want %v", c.allowed, c.later, w, c.want)
		}
	}
}

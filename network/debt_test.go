package network

import (
	"testing"
	"time"
)

func TestDebt(t *testing.T) {
	now := time.Unix(1000, 0)
	var d debt
	if w := d.beyond(time.Second, now); w != 0 {
		t.Errorf("nobody owes anything, and %v are to wait", w)
	}
	for range 3 {
		d.add(time.Second, now)
	}
	for _, c := range []struct{ allowed, later, want time.Duration }{
		{0, 0, 3 * time.Second}, {2 * time.Second, 0, time.Second}, {2 * time.Second, time.Second, 0}, {0, time.Hour, 0},
	} {
		if w := d.beyond(c.allowed, now.Add(c.later)); w != c.want {
			t.Errorf("%v allowed, %v later: %v, want %v", c.allowed, c.later, w, c.want)
		}
	}
}

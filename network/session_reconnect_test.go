package network

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

var (
	reconnectHere  = netip.MustParseAddr("192.0.2.1")
	reconnectThere = netip.MustParseAddr("192.0.2.2")
)

// TestReconnects checks how many sessions a switch, or an address, can have within a minute if
// each lasts for a given time and the next begins as soon as it may.
func TestReconnects(t *testing.T) {
	for _, c := range []struct {
		name     string
		switches int // of the address, one after the other
		lasts    time.Duration
		named    bool
		least    int
		atMost   int
	}{
		{"a switch that comes and goes", 1, time.Millisecond, false, 60, 66},
		{"a named one too", 1, time.Millisecond, true, 60, 66},
		{"sessions that last", 1, 10 * time.Second, false, 6, 6},
		{"switches made up", 1 << 20, time.Millisecond, false, 480, 545},
		{"many that are named", 1 << 20, time.Millisecond, true, 60000, 60000},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r reconnectLimiter
			sessions := 0
			start := time.Unix(1000, 0)
			for now := start; now.Sub(start) < time.Minute; {
				d := openflow.DatapathID(sessions%c.switches + 1)
				now = now.Add(r.delay(d, reconnectHere, c.named, now))
				sessions++
				now = now.Add(c.lasts)
				r.sessionEnded(d, reconnectHere, c.lasts, now)
				if w := r.delay(d, reconnectThere, false, now); w != 0 {
					t.Fatalf("a switch elsewhere of this name has to wait for %v", w)
				}
			}
			if sessions < c.least || sessions > c.atMost {
				t.Errorf("%d sessions, want %d to %d", sessions, c.least, c.atMost)
			}
			if len(r.switches) > maxReconnectEntries || len(r.addresses) > maxReconnectEntries {
				t.Errorf("%d switches and %d addresses are remembered", len(r.switches), len(r.addresses))
			}
		})
	}
}

// TestReconnectsAreForgiven checks that the delay from any number of short sessions is over within
// a minute.
func TestReconnectsAreForgiven(t *testing.T) {
	var r reconnectLimiter
	now := time.Unix(1000, 0)
	for range 100_000 {
		r.sessionEnded(1, reconnectHere, time.Millisecond, now)
	}
	later := now.Add(maxReconnectDebt)
	if w := r.delay(1, reconnectHere, false, later); w != 0 {
		t.Errorf("a minute later it waits for %v more", w)
	}
}

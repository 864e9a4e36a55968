package integration

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
)

// TestConnectTime compares how long a client's connect takes directly and with
// SOS: one round trip of the WAN and 5 ms more at most, median of 50.
func TestConnectTime(t *testing.T) {
	w := newWorld(t, lab.WAN("sosconn", wan), options{})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	w.post("disable", nil, nil)
	direct := w.connectTimes(50)
	w.post("enable", nil, nil)
	w.settled()
	carried := w.connectTimes(50)
	past := w.sessions("past")
	if len(past) != 50 || past[0].Setup.Total == 0 {
		t.Errorf("%d sessions, want 50", len(past))
	}
	over := carried[25] - direct[25] - wan.RTT
	t.Logf("connect time, median of 50: direct %v, with SOS %v, that is one round trip and %v more; slowest %v", direct[25], carried[25], over, carried[49])
	st := past[0].Setup
	t.Logf("set-up of the last: %+v", st)
	if over > 5*time.Millisecond {
		t.Errorf("SOS takes %v more than a round trip, want at most 5 ms", over)
	}
}

// connectTimes connects n times, one after the other, and sorts the times.
func (w *world) connectTimes(n int) []time.Duration {
	w.t.Helper()
	var times []time.Duration
	for range n {
		ctx, cancel := context.WithTimeout(w.t.Context(), patience)
		start := time.Now()
		c, err := w.dial(ctx, w.serverAddr(80))
		took := time.Since(start)
		cancel()
		if err != nil {
			w.t.Fatal(err)
		}
		times = append(times, took)
		_ = c.Close()
		w.eventually("the session is over", func() bool { return len(w.sessions("live")) == 0 })
	}
	slices.Sort(times)
	return times
}

package network

import (
	"testing"
	"time"
)

// TestLoopback checks that only the expected packet counts, and that a switch which has not
// returned several packets is not probed for some time, until it returns one again.
func TestLoopback(t *testing.T) {
	var l loopback
	old, _ := l.next()
	frame, came := l.next()
	at := time.Now()
	l.receive(old, at)
	l.receive(frame[:20], at)
	select {
	case <-came:
		t.Fatal("another packet was taken for the one that is waited for")
	default:
	}
	l.receive(frame, at)
	l.receive(frame, at) // once more
	if got := <-came; !got.Equal(at) {
		t.Errorf("came at %v, want %v", got, at)
	}
	l.finish(true, at)
	for range maxLoopbackFailures {
		if !l.supported(at) {
			t.Error("given up too early")
		}
		l.finish(false, at)
	}
	for _, later := range []time.Duration{0, loopbackRetry} {
		tried := at.Add(later)
		if l.supported(tried.Add(loopbackRetry - 1)) {
			t.Error("a switch that keeps all packets is still asked")
		}
		if !l.supported(tried.Add(loopbackRetry)) {
			t.Error("a switch that has kept packets once is never asked again")
		}
		l.finish(false, tried.Add(loopbackRetry))
	}
	l.finish(true, at)
	if !l.supported(at) {
		t.Error("a packet has come back, and the switch is not asked")
	}
}

func TestRoundTripsOfPacketsComeFirst(t *testing.T) {
	var r roundTrips
	if c := r.control(); c.RoundTrip != 0 {
		t.Errorf("%v before the first", c)
	}
	echo, loop := []time.Duration{2 * time.Millisecond}, 3*time.Millisecond
	r.addEchoes(echo)
	if c := r.control(); c.RoundTrip != echo[0] {
		t.Errorf("%v, want that of the echo", c)
	}
	r.addLoopback(loop)
	if c := r.control(); c.RoundTrip != loop {
		t.Errorf("%v, want that of the packet", c)
	}
	if d := r.median(); d != echo[0] {
		t.Errorf("usually %v, want that of echoes", d)
	}
	r.clearLoopbacks()
	if c := r.control(); c.RoundTrip != echo[0] {
		t.Errorf("%v, want that of the echo again", c)
	}
}

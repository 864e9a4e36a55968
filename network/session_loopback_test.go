package network

import (
	"testing"
	"time"
)

// TestLoops: only the packet that is waited for counts, and a switch that has kept
// several is not asked for a while, until one comes back again.
func TestLoops(t *testing.T) {
	var l loops
	old, _ := l.next()
	frame, came := l.next()
	at := time.Now()
	l.returned(old, at)
	l.returned(frame[:20], at)
	select {
	case <-came:
		t.Fatal("another packet was taken for the one that is waited for")
	default:
	}
	l.returned(frame, at)
	l.returned(frame, at) // once more
	if got := <-came; !got.Equal(at) {
		t.Errorf("came at %v, want %v", got, at)
	}
	l.over(true, at)
	for range loopFailures {
		if !l.able(at) {
			t.Error("given up too early")
		}
		l.over(false, at)
	}
	for _, later := range []time.Duration{0, loopAgain} {
		tried := at.Add(later)
		if l.able(tried.Add(loopAgain - 1)) {
			t.Error("a switch that keeps all packets is still asked")
		}
		if !l.able(tried.Add(loopAgain)) {
			t.Error("a switch that has kept packets once is never asked again")
		}
		l.over(false, tried.Add(loopAgain))
	}
	l.over(true, at)
	if !l.able(at) {
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
	r.addLoop(loop)
	if c := r.control(); c.RoundTrip != loop {
		t.Errorf("%v, want that of the packet", c)
	}
	if d := r.typical(); d != echo[0] {
		t.Errorf("usually %v, want that of echoes", d)
	}
	r.forgetLoops()
	if c := r.control(); c.RoundTrip != echo[0] {
		t.Errorf("%v, want that of the echo again", c)
	}
}

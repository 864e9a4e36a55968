package access

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// alone returns a router that does not run, and its only host.
func alone(t testing.TB) (*Router, *guest) {
	t.Helper()
	r, err := New(Options{Hosts: []Host{{GUID: guidOf(1), Key: keyOf(1)}}, Memory: MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	return r, r.all[0]
}

// accepts reports whether a host's chunk for a destination is accepted.
func (g *guest) accepts(to frame.GUID, size int, service frame.Service, now time.Time) bool {
	return g.accept(&reassembly{message: &message{to: to, service: service, payload: make([]byte, size)}}, now)
}

// However much a host sends to one destination, there is room for others, and for the largest chunk
// to each that has none.
func TestRoomForOthers(t *testing.T) {
	for name, size := range map[string]int{"chunks": 1, "bytes": 100_000} {
		_, g := alone(t)
		for n := range byte(5) {
			count := 0
			for g.accepts(nameOf(n), size, 0, time.Now()) {
				count++
			}
			if count == 0 {
				t.Errorf("%s: there is no room for destination %d", name, n)
			}
		}
	}
	_, g := alone(t)
	if !g.accepts(nameOf(2), hostapi.MaxChunk, 0, time.Now()) || g.accepts(nameOf(2), 1, 0, time.Now()) || !g.accepts(nameOf(3), 1, 0, time.Now()) {
		t.Error("the largest chunk is not taken, or one behind it is, or none for another")
	}
}

// Chunks expire even while others for the same destination are in flight, and those in flight do
// not.
func TestExpireBehind(t *testing.T) {
	for name, x := range map[string]struct {
		services []frame.Service // of the chunks: those that may wait are sent before there is a sign of the destination
		fails    bool            // the first does
		expired  uint64
	}{
		"the next":          {[]frame.Service{frame.DelayTolerant, 0, 0}, false, 2},
		"one that failed":   {[]frame.Service{frame.DelayTolerant, frame.DelayTolerant, 0}, true, 2},
		"all are under way": {[]frame.Service{frame.DelayTolerant, frame.DelayTolerant}, false, 0},
	} {
		r, g := alone(t)
		s, now := &session{guest: g}, time.Now()
		for _, service := range x.services {
			if !g.accepts(nameOf(2), 9, service, now) {
				t.Fatal("there is no room")
			}
		}
		f := g.flows[nameOf(2)]
		f.running = true
		some, _, _ := s.nextChunks(t.Context(), f, now)
		if x.fails {
			s.sendEnded(f, some[0], hostapi.ErrNotTaken)
			some = some[1:]
		}
		r.mu.Lock()
		g.expire(now.Add(DefaultKeep + 1))
		r.mu.Unlock()
		if c := r.Counters(); c.Expired != x.expired || c.Chunks != len(some) {
			t.Errorf("%s: %d are under way, %+v", name, len(some), c)
		}
		for _, k := range some {
			s.sendEnded(f, k, nil)
		}
		if c := r.Counters(); c.Taken != uint64(len(some)) || c.Chunks != 0 || c.Bytes != 0 || f.heldBytes != 0 {
			t.Errorf("%s: when these are taken: %+v", name, c)
		}
	}
}

// The host of Sluice continues to send its chunks when the router has closed the connection, but
// not when the host has failed, even while the sender is absent.
func TestLeft(t *testing.T) {
	for name, closed := range map[string]bool{"closed": true, "failed": false} {
		r, g := alone(t)
		s, now := &session{guest: g, leaving: true}, time.Now()
		if !g.accepts(nameOf(2), 9, 0, now) {
			t.Fatal("there is no room")
		}
		f := g.flows[nameOf(2)]
		some, _, _ := s.nextChunks(t.Context(), f, now)
		s.end(closed)
		s.sendEnded(f, some[0], hostapi.ErrClosed)
		if c := r.Counters(); c.Left == 1 != closed || c.Chunks == 0 != closed {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// When the host has left, chunks that wait for a retry are tried once immediately, and then less
// and less often as usual.
func TestRetryWhileLeaving(t *testing.T) {
	_, g := alone(t)
	s, now := &session{guest: g}, time.Now()
	if !g.accepts(nameOf(2), 9, frame.DelayTolerant, now) {
		t.Fatal("there is no room")
	}
	f := g.flows[nameOf(2)]
	try := func() int {
		some, _, _ := s.nextChunks(t.Context(), f, now)
		for _, k := range some {
			s.sendEnded(f, k, hostapi.ErrNotTaken)
		}
		return len(some)
	}
	if try() != 1 || try() != 0 {
		t.Fatal("it is not tried once")
	}
	g.present = false
	s.poll(false)
	if try() != 1 {
		t.Error("it is not tried when the host is gone")
	}
	tries := 0
	for until := now.Add(lingerTime); now.Before(until); now = now.Add(time.Millisecond) {
		tries += try()
	}
	if tries < 1 || tries > 5 {
		t.Errorf("it is tried %d times in %v", tries, lingerTime)
	}
}

// A destination that does not answer is pinged less and less often, until it does.
func TestAskLessOften(t *testing.T) {
	r, g := alone(t)
	r.Keep = time.Hour
	s, now := &session{guest: g}, time.Now()
	if !g.accepts(nameOf(2), 9, 0, now) {
		t.Fatal("there is no room")
	}
	f := g.flows[nameOf(2)]
	asks := func(within time.Duration) (n int) {
		for until := now.Add(within); now.Before(until); now = now.Add(time.Millisecond) {
			if _, ask, _ := s.nextChunks(t.Context(), f, now); ask {
				s.pinged(f, false, now)
				n++
			}
		}
		return n
	}
	if n := asks(initialRetry << maxDoublings * 2); n != maxDoublings+2 {
		t.Errorf("it is asked %d times", n)
	}
	s.pinged(f, true, now)
	now = now.Add(provenLifetime)
	if n := asks(initialRetry * 3); n != 2 {
		t.Errorf("it is asked %d times after there was a sign", n)
	}
}

package subflows

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/network"
)

// soonEnough is how long a subflow may stay on a shared path while another is free.
const soonEnough = time.Second

// misplaced returns a network in which a subflow has been placed right after a transfer by two of
// three paths: these still look full, so that it goes by the third with the connection's first
// subflow.
func misplaced(t *testing.T, lag time.Duration) (*world, *subflow) {
	t.Helper()
	w := newWorld(t)
	w.lag = lag
	w.load(1, 2, 10*mbit)
	w.load(1, 3, 10*mbit)
	w.send(1, 4, 10*mbit)
	w.send(4, 5, 10*mbit)
	if by := w.placed(a, b, 1000, 1); by != 4 {
		t.Fatalf("it goes by %d, where 2 and 3 look full", by)
	}
	return w, w.flows.all()[0]
}

// TestLoadThatHasEnded checks that a subflow leaves a path that it shares within a second, if
// another one has become free since the last regular reading. A switch may be late with the
// counters of rules.
func TestLoadThatHasEnded(t *testing.T) {
	for _, lag := range []time.Duration{0, 200 * time.Millisecond, 500 * time.Millisecond} {
		for _, phase := range []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				pause.For(phase, "the time at which the switch updates its counters")
				w, f := misplaced(t, lag)
				w.carry(f, 5*mbit)
				pause.For(soonEnough, "the subflow, which is to be moved")
				if by := w.way(1000); by == 4 {
					t.Errorf("counters %v late: it stays beside the connection's first subflow, where two other paths are idle", lag)
				}
			})
		}
	}
}

// TestAloneStays checks that a subflow which fills a link by itself is not moved to an idle path.
func TestAloneStays(t *testing.T) {
	for _, lag := range []time.Duration{0, 200 * time.Millisecond, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w, f := misplaced(t, lag)
			w.carry(f, 10*mbit)
			pause.For(5*time.Second, "the subflow, which is to stay")
			if by := w.way(1000); by != 4 {
				t.Errorf("counters %v late: it is moved to %d from a link that it has for itself", lag, by)
			}
		})
	}
}

// TestOtherPathBecomesFree checks that a subflow for which there was no better path is moved within
// a second after there is one.
func TestOtherPathBecomesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := misplaced(t, 500*time.Millisecond)
		for _, by := range []int{2, 3} {
			w.send(1, by, 10*mbit)
			w.send(by, 5, 10*mbit)
		}
		w.carry(f, 5*mbit)
		pause.For(20*time.Second, "other traffic, which fills all paths")
		if by := w.way(1000); by != 4 {
			t.Fatalf("it is moved to %d, which is as full", by)
		}
		w.send(1, 2, 0)
		w.send(2, 5, 0)
		pause.For(soonEnough, "the subflow, which is to be moved")
		if by := w.way(1000); by != 2 {
			t.Errorf("it goes by %d, where 2 is idle", by)
		}
	})
}

// TestEndedSubflowsExpectNothing checks that the load that a subflow was expected to cause no longer
// counts when the subflow has ended, or has been moved away.
func TestEndedSubflowsExpectNothing(t *testing.T) {
	w := newWorld(t)
	by := w.placed(a, b, 1000, 1)
	f, loads := w.flows.all()[0], w.placer.chooser.loads
	expectedOn := func(by int) bool { return loads.widths(time.Now(), nil).taken[port(1, by)] > 0 }
	if !expectedOn(by) {
		t.Fatal("a subflow that has just been placed is not expected to carry anything")
	}
	w.cut(1, by)
	w.review(t.Context())
	if expectedOn(by) || !expectedOn(w.way(1000)) {
		t.Errorf("a subflow has been moved from %d to %d; expected loads: %v", by, w.way(1000), loads.expected)
	}
	by = w.way(1000)
	w.placer.end(f, "the test")
	if expectedOn(by) {
		t.Errorf("a subflow by %d has ended; expected loads: %v", by, loads.expected)
	}
}

// TestWatchIsBounded checks that however many subflows begin, from one port or from all, their paths
// are read no more often than is allowed, and no longer than they are new.
func TestWatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 60 {
			w.offer(syn([2]int{1, 1 + i%3}, b, uint16(1000+i)), uint32(i))
		}
		w.mu.Lock()
		w.reads = 0
		w.mu.Unlock()
		pause.For(time.Second, "readings")
		w.mu.Lock()
		reads := w.reads
		w.reads = 0
		w.mu.Unlock()
		if most := int(time.Second/watchInterval+1) * len(w.net.Topology().Switches); reads == 0 || reads > most {
			t.Errorf("%d readings of 5 switches in a second, want at most %d", reads, most)
		}
		pause.For(time.Minute, "subflows, which are no longer new")
		w.mu.Lock()
		w.reads = 0
		w.mu.Unlock()
		pause.For(time.Second, "readings")
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.reads != 0 {
			t.Errorf("%d readings, where nothing is new and no link full", w.reads)
		}
	})
}

// TestWatchedOfOnePort checks that a port with many new subflows does not keep those of others from
// being watched.
func TestWatchedOfOnePort(t *testing.T) {
	var list watchList
	from := func(n int) *subflow {
		return &subflow{stored: stored{From: network.PortRef{Switch: 1, Port: uint32(n)}}}
	}
	now := time.Unix(0, 0)
	for range 100 {
		list.add(&watched{f: from(1), since: now})
	}
	if n := len(list.all()); n != maxWatchedEach {
		t.Errorf("%d subflows of one port are watched, want %d", n, maxWatchedEach)
	}
	for n := range 100 {
		list.add(&watched{f: from(2 + n), since: now})
	}
	if n := len(list.all()); n != maxWatched {
		t.Errorf("%d subflows are watched, want %d", n, maxWatched)
	}
}

package discovery

import (
	"strings"
	"testing"
	"time"
)

// TestFullLinkStands checks that a link so full that its probes are lost is kept while it
// carries packets, which is reported once, and is removed when it carries nothing.
func TestFullLinkStands(t *testing.T) {
	w := newWire(t, Options{Interval: time.Second, Lifetime: 3 * time.Second}, ref(1, 1), ref(2, 1))
	w.connect(ref(1, 1), ref(2, 1))
	w.run(2 * time.Second)
	w.took()
	w.full[ref(1, 1)] = true
	w.run(time.Minute)
	if got, want := w.took(), "unprobed 1/1-2/1"; got != want {
		t.Errorf("full: got %q, want %q", got, want)
	}
	if len(w.d.Links()) != 2 || w.d.IsEdge(ref(2, 1)) {
		t.Errorf("links %v; the end of one is an edge port: %v", w.d.Links(), w.d.IsEdge(ref(2, 1)))
	}
	delete(w.cable, ref(1, 1)) // what is sent does not arrive any more
	w.run(5 * time.Second)
	if got, want := w.took(), "down 1/1-2/1"; got != want {
		t.Errorf("cut: got %q, want %q", got, want)
	}
}

// TestFullLinkIsProbedAgain checks that a formerly full link is probed as before, and reported
// again if it fills again.
func TestFullLinkIsProbedAgain(t *testing.T) {
	w := newWire(t, Options{Interval: time.Second, Lifetime: 3 * time.Second}, ref(1, 1), ref(2, 1))
	w.connect(ref(1, 1), ref(2, 1))
	w.run(2 * time.Second)
	w.took()
	for range 2 {
		w.full[ref(1, 1)] = true
		w.run(10 * time.Second)
		delete(w.full, ref(1, 1))
		w.run(10 * time.Second)
		if got, want := w.took(), "unprobed 1/1-2/1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestTrafficOfOthersKeepsNoLink checks that the packets which a port receives do not keep a
// link if several links lead there, or if the link's sending end sends nothing.
func TestTrafficOfOthersKeepsNoLink(t *testing.T) {
	w := newWire(t, Options{Interval: time.Second, Lifetime: 3 * time.Second}, ref(1, 1), ref(2, 1), ref(3, 1))
	w.cable[ref(1, 1)], w.cable[ref(3, 1)] = ref(2, 1), ref(2, 1) // a shared medium
	w.run(2 * time.Second)
	w.took()
	w.full[ref(1, 1)], w.full[ref(3, 1)] = true, true
	delete(w.cable, ref(1, 1))
	w.run(10 * time.Second)
	if got, want := w.took(), "down 1/1-2/1"; !strings.HasPrefix(got, want) {
		t.Errorf("on a shared medium: got %q, want %q first", got, want)
	}
	w = newWire(t, Options{Interval: time.Second, Lifetime: 3 * time.Second}, ref(1, 1), ref(2, 1), ref(3, 1))
	w.connect(ref(1, 1), ref(2, 1))
	w.run(2 * time.Second)
	w.took()
	delete(w.cable, ref(1, 1))
	w.cable[ref(3, 1)], w.full[ref(3, 1)] = ref(2, 1), true // it receives, and not from there
	w.run(10 * time.Second)
	if got, want := w.took(), "down 1/1-2/1"; got != want {
		t.Errorf("nothing is sent: got %q, want %q", got, want)
	}
}

// TestCountersAreAskedForInDoubt checks that counters are requested only while probes are
// overdue, twice an interval.
func TestCountersAreAskedForInDoubt(t *testing.T) {
	w := newWire(t, Options{Interval: time.Second, Lifetime: 3 * time.Second}, ref(1, 1), ref(2, 1))
	w.connect(ref(1, 1), ref(2, 1))
	w.run(2 * time.Second)
	asked := 0
	for range 1000 {
		due := w.d.Tick(w.now)
		asked += len(due.Count)
		for _, p := range due.Probe {
			if err := w.receive(w.d.Probe(nil, p, w.now), w.cable[p]); err != nil {
				t.Fatal(err)
			}
		}
		w.now = w.now.Add(10 * time.Millisecond)
	}
	if asked != 0 {
		t.Errorf("counters were asked for %d times of a link that is well", asked)
	}
	for range 200 {
		due := w.d.Tick(w.now)
		asked += len(due.Count)
		w.now = w.now.Add(10 * time.Millisecond)
	}
	if asked < 4 || asked > 12 { // of two ends of two links, within a second of doubt
		t.Errorf("counters were asked for %d times in doubt", asked)
	}
}

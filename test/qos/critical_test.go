package qos

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// TestCriticalFlows adds and ends critical flows of all kinds on one network.
func TestCriticalFlows(t *testing.T) {
	t.Parallel()
	w := newCriticalWorld(t)
	w.run("connection closes", w.connectionCloses)
	w.run("link fails", w.linkFails)
	w.run("excess is dropped", w.excessIsDropped)
	w.run("plain traffic takes from best effort", w.plainTakesFromBestEffort)
}

// TestCriticalFlowsOutliveRestarts checks that critical flows survive the controller.
func TestCriticalFlowsOutliveRestarts(t *testing.T) {
	t.Parallel()
	w := newCriticalWorld(t)
	w.run("as before", w.restartsAsBefore)
	w.run("with less capacity", w.restartsWithLessCapacity)
}

// connectionCloses checks that the promise to a connection is released as soon as the
// connection is closed, long before the idle timeout of its rules.
func (w *criticalWorld) connectionCloses(t *testing.T) {
	w.defineAs(critical.Spec{Name: "bulk", Rate: 10_000_000, Match: match.Flow{TCPDst: "5001"}, IdleTimeout: "1h"})
	to := w.lab.Host("b1")
	for i := range 3 { // two ways of 15 Mbit/s have room for two
		_, err := testbed.Bulk{From: w.lab.Host("a1"), To: to, Addr: netip.AddrPortFrom(to.Addr(), 5001), Bytes: 256 << 10}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.eventually("nothing is promised", func() bool { return w.promised() == 0 })
		flows := w.flows()
		if len(flows) != i+1 {
			t.Fatalf("%d flows: %+v", len(flows), flows)
		}
		for _, f := range flows {
			if f.State != critical.StateAccepted || !f.Closed {
				t.Errorf("%+v", f)
			}
		}
	}
	if rules, _ := w.ours(); len(rules) == 0 {
		t.Error("the rules have gone before they have been silent")
	}
}

// promised returns the sum of the promises on all links.
func (w *criticalWorld) promised() (sum uint64) {
	for _, r := range w.reservations() {
		sum += r.Promised
	}
	return sum
}

// linkFails takes down a link under a critical flow, which is then placed anew, until each
// link of both paths has failed. The experiment qos-critical measures how long the flow is
// silent.
func (w *criticalWorld) linkFails(t *testing.T) {
	w.define(5_000_000)
	s := w.streamOf("a1", "b1", testbed.StreamOptions{Rate: 100})
	stop := sync.OnceFunc(func() { s.Stop() })
	defer stop()
	w.placed(1)
	const rounds = 4
	for round := range rounds {
		via := middle(w.flows()[0])
		link := []string{"s1-" + via, via + "-s4"}[round/2]
		if err := w.lab.SetLink(t.Context(), link, false); err != nil {
			t.Fatal(err)
		}
		w.eventually("the flow goes another way", func() bool { return middle(w.flows()[0]) != via })
		moved := time.Now()
		w.eventually("its packets arrive", func() bool { return s.LastArrival().After(moved) })
		if err := w.lab.SetLink(t.Context(), link, true); err != nil {
			t.Fatal(err)
		}
		w.eventually("the link is back", func() bool { return len(w.net.Topology().Links) == 8 })
	}
	// Nothing is promised on a link that is up again before it has been measured again.
	w.eventually("it is accepted", func() bool { return w.flows()[0].State == critical.StateAccepted })
	if f := w.flows()[0]; f.Moves != rounds {
		t.Errorf("in the end: %+v", f)
	}
	stop()
	w.eventually("the silent flow is over, and its promise", func() bool { return len(w.flows()) == 0 && len(w.reservations()) == 0 })
}

// excessIsDropped checks that the excess of an accepted flow over its promise is dropped
// and reported, and that two other flows on the same link continue. The experiment
// qos-critical measures what the three of them get.
func (w *criticalWorld) excessIsDropped(t *testing.T) {
	w.oneWay()
	w.define(1_000_000)
	polite := testbed.StreamOptions{Rate: 40, Size: 1400} // half of what is promised
	first := w.streamOf("a1", "b1", polite)
	defer first.Stop()
	second := w.streamOf("a2", "b2", polite)
	defer second.Stop()
	w.placed(2)
	rude := w.streamOf("a3", "b3", testbed.StreamOptions{Rate: 400, Size: 1400})
	defer rude.Stop()
	for _, f := range w.placed(3) {
		if f.State != critical.StateAccepted {
			t.Fatalf("%+v", f)
		}
	}
	w.eventually("the excess is told", func() bool {
		f := w.placed(3)[2]
		return f.Excess > 0 && strings.Contains(f.Reason, "drops")
	})
	w.eventually("it is dropped", func() bool { return w.dropped() > 100 })
	since := time.Now()
	w.eventually("all others go on", func() bool {
		return first.LastArrival().After(since) && second.LastArrival().After(since) && rude.LastArrival().After(since)
	})
	for _, f := range w.flows()[:2] {
		if f.Excess != 0 || f.State != critical.StateAccepted {
			t.Errorf("a flow that keeps to its promise: %+v", f)
		}
	}
}

// plainTakesFromBestEffort checks that, on a link with an accepted flow, the meter of a
// refused one also leaves capacity for plain traffic while there is any, and that the
// refused flow stays refused although it sends. Experiments measure how much each of them
// gets.
func (w *criticalWorld) plainTakesFromBestEffort(t *testing.T) {
	w.define(12_000_000) // one of two fits on 15 Mbit/s
	first := w.streamOf("a1", "b1", testbed.StreamOptions{Rate: 50})
	defer first.Stop()
	w.placed(1)
	second := w.streamOf("a2", "b2", testbed.StreamOptions{Rate: 50})
	defer second.Stop()
	all := w.placed(2)
	if all[0].State != critical.StateAccepted || all[1].State != critical.StateBestEffort || middle(all[1]) != "s2" {
		t.Fatalf("%+v", all)
	}
	const beside = "rate=2400 " // 96 % of 15 Mbit/s, less 12
	w.eventually("best effort has what the promise leaves", func() bool { return strings.Contains(w.meters("s1"), beside) })
	to := w.lab.Host("b3")
	plain, err := testbed.StartStream(t.Context(), testbed.StreamOptions{Sender: w.lab.Host("a3"), Receiver: to, To: netip.AddrPortFrom(to.Addr(), 6000), Rate: 100, Size: 1400})
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { plain.Stop() })
	defer stop()
	w.eventually("it has less beside plain traffic", func() bool { return !strings.Contains(w.meters("s1"), beside) })
	if all = w.placed(2); all[0].State != critical.StateAccepted || all[1].State != critical.StateBestEffort {
		t.Errorf("beside plain traffic: %+v", all)
	}
	stop()
	w.eventually("it has as much again when that has ended", func() bool { return strings.Contains(w.meters("s1"), beside) })
}

// meters returns the meters of a switch.
func (w *criticalWorld) meters(node string) string {
	w.t.Helper()
	all, err := w.lab.Switch(node).Ofctl(w.t.Context(), "dump-meters")
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// dropped returns how many packets meters have dropped.
func (w *criticalWorld) dropped() (sum int) {
	w.t.Helper()
	for _, s := range []string{"s1", "s2", "s3", "s4"} {
		stats, err := w.lab.Switch(s).Ofctl(w.t.Context(), "meter-stats")
		if err != nil {
			w.t.Fatal(err)
		}
		for line := range strings.Lines(stats) {
			var band, packets int
			if n, _ := fmt.Sscanf(strings.TrimSpace(line), "%d: packet_count:%d", &band, &packets); n == 2 {
				sum += packets
			}
		}
	}
	return sum
}

func (w *criticalWorld) reservations() []reserve.Reservation {
	var out []reserve.Reservation
	if err := w.rest.Get(w.t.Context(), "/api/v1/qos/reservations", &out); err != nil {
		w.t.Error(err)
	}
	return out
}

// ours returns the rules of flows in the switches, and the number of their meters.
func (w *criticalWorld) ours() (rules []string, meters int) {
	w.t.Helper()
	for _, s := range []string{"s1", "s2", "s3", "s4"} {
		flows, err := w.lab.Switch(s).Ofctl(w.t.Context(), "dump-flows", "--no-stats")
		if err != nil {
			w.t.Fatal(err)
		}
		for line := range strings.Lines(flows) {
			if strings.Contains(line, "priority=20300") {
				rules = append(rules, s+strings.TrimSpace(line))
			}
		}
		all, err := w.lab.Switch(s).Ofctl(w.t.Context(), "dump-meters")
		if err != nil {
			w.t.Fatal(err)
		}
		meters += strings.Count(all, "meter=")
	}
	slices.Sort(rules)
	return rules, meters
}

// restartsAsBefore restarts the controller under two accepted flows and a best-effort one.
// No rule is rewritten, packets arrive while no controller runs, and promises and paths are
// as before.
func (w *criticalWorld) restartsAsBefore(t *testing.T) {
	w.define(10_000_000)
	var streams []*testbed.Stream
	var before []critical.Record
	for i := range 3 { // two ways of 15 Mbit/s have room for two
		s := w.streamOf(fmt.Sprintf("a%d", i+1), fmt.Sprintf("b%d", i+1), testbed.StreamOptions{Rate: 50})
		defer s.Stop()
		streams = append(streams, s)
		before = w.placed(i + 1)
	}
	states := fmt.Sprint(before[0].State, before[1].State, before[2].State)
	if states != "acceptedacceptedbest-effort" || middle(before[0]) == middle(before[1]) {
		t.Fatalf("placed: %+v", before)
	}
	rules, meters := w.ours()
	promised := w.reservations()
	if meters == 0 {
		t.Fatal("nothing holds best effort back")
	}
	w.stop()
	since := time.Now()
	w.eventually("packets of all flows arrive without a controller", func() bool {
		return !slices.ContainsFunc(streams, func(s *testbed.Stream) bool { return !s.LastArrival().After(since) })
	})
	w.start()
	after := w.placed(3)
	for i := range after {
		if after[i].ID != before[i].ID || after[i].State != before[i].State || middle(after[i]) != middle(before[i]) {
			t.Errorf("before %+v, after %+v", before[i], after[i])
		}
	}
	if got, n := w.ours(); !slices.Equal(got, rules) || n != meters {
		t.Errorf("%d rules and %d meters of before\n%s\nare now %d and %d\n%s", len(rules), meters, strings.Join(rules, "\n"), len(got), n, strings.Join(got, "\n"))
	}
	if now := w.reservations(); len(now) != len(promised) || now[0].Promised != promised[0].Promised {
		t.Errorf("promised before %+v, after %+v", promised, now)
	}
}

// restartsWithLessCapacity restarts the controller with links of two thirds of their rate,
// so that the promises no longer fit. Of two flows one keeps its promise, and the other
// reports which link has too little.
func (w *criticalWorld) restartsWithLessCapacity(t *testing.T) {
	w.oneWay()
	w.define(7_000_000)
	for i, few := range []string{"1", "2"} {
		s := w.streamOf("a"+few, "b"+few, testbed.StreamOptions{Rate: 50})
		defer s.Stop()
		if all := w.placed(i + 1); all[i].State != critical.StateAccepted {
			t.Fatalf("%+v", all)
		}
	}
	w.stop()
	w.capacity, w.links = trunk*2/3, 6
	w.start()
	w.eventually("one gives its promise up", func() bool {
		all := w.placed(2)
		return all[0].State == critical.StateAccepted && all[1].State == critical.StateBestEffort && strings.Contains(all[1].Reason, "3000000 of 10000000 available")
	})
}

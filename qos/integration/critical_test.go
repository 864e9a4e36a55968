package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/qos/bandwidth"
	"github.com/sluice-net/sluice/qos/reserve"
)

// A link fails under a critical flow, ten times: the flow is placed anew, and the
// silence at the receiver is printed.
func TestCriticalLinkFails(t *testing.T) {
	w := newCriticalWorld(t)
	w.define(5_000_000)
	s := w.stream("a1", "b1")
	w.placed(1)
	var gaps []time.Duration
	for round := range 10 {
		via := middle(w.flows()[0])
		link := []string{"s1-" + via, via + "-s4"}[round%2]
		begin := time.Now()
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
		report := s.Snapshot().Between(begin, time.Now())
		gaps = append(gaps, report.Gap)
		t.Logf("%s down: silent for %v, %d packets of %d lost", link, report.Gap, report.Lost, report.Sent)
	}
	s.Stop()
	slices.Sort(gaps)
	t.Logf("from port-down to the first packet on the new path: p50 %v, longest %v", quantile(gaps, 0.5), quantile(gaps, 1))
	if p50 := quantile(gaps, 0.5); p50 > 200*time.Millisecond {
		t.Errorf("p50 is %v, at most 200 ms was asked for", p50)
	}
	if f := w.flows()[0]; f.Moves != 10 || f.State != bandwidth.StateAccepted {
		t.Errorf("in the end: %+v", f)
	}
	w.eventually("the silent flow is over, and its promise", func() bool { return len(w.flows()) == 0 && len(w.reservations()) == 0 })
}

func (w *criticalWorld) reservations() []reserve.Reservation {
	var out []reserve.Reservation
	if err := w.rest.Get(w.t.Context(), "/api/v1/qos/reservations", &out); err != nil {
		w.t.Error(err)
	}
	return out
}

// ours counts rules and meters that flows have in the switches.
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

// The controller is restarted under an accepted flow and one of best effort: no rule
// is written anew, no packet is lost, and promises and places are as before.
func TestCriticalControllerRestarts(t *testing.T) {
	w := newCriticalWorld(t)
	w.define(10_000_000)
	var before []bandwidth.Record
	for i := range 3 { // two ways of 15 Mbit/s have room for two
		// So few packets that a meter does not drop what a machine that has paused delivers at once.
		s := w.streamOf(fmt.Sprintf("a%d", i+1), fmt.Sprintf("b%d", i+1), stage.StreamOptions{Rate: 100})
		defer func() {
			log := s.Stop()
			if r := log.All(); r.Lost > 0 {
				t.Errorf("flow %d lost %d of %d packets; its own kernel refused %d", i+1, r.Lost, r.Sent, log.Refused())
			}
		}()
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

// Definitions are withdrawn while flows of theirs are being placed, in all stages of
// it: packets go on by default forwarding, and nothing is left in the switches.
func TestCriticalWithdrawn(t *testing.T) {
	w := newCriticalWorld(t)
	for round := range 5 {
		w.define(1_000_000)
		s := w.stream("a1", "b1")
		other := w.stream("b2", "a2")
		w.eventually("a flow has begun", func() bool { return round%2 == 0 || len(w.flows()) > 0 })
		if err := w.rest.Do(t.Context(), http.MethodDelete, "/api/v1/qos/critical/video", nil, nil); err != nil {
			t.Fatal(err)
		}
		if rest := len(w.flows()) + len(w.reservations()); rest != 0 {
			t.Errorf("%d flows and promises are left", rest)
		}
		since := time.Now()
		w.eventually("packets go on", func() bool { return s.LastArrival().After(since) && other.LastArrival().After(since) })
		s.Stop()
		other.Stop()
	}
	if rules, _ := w.ours(); len(rules) > 0 {
		t.Errorf("left: %v", rules)
	}
	w.eventually("no meter is left", func() bool { _, n := w.ours(); return n == 0 })
}

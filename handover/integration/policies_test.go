package integration

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/plugin"
	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/internal/race"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// handovers of the tests that measure.
const handovers = 50

// TestSavingGap moves a device with one interface from edge to edge and back under
// 1,000 packets a second. It is unreachable from when it asks at the new place to
// when the first packet comes there, which the model predicts.
func TestSavingGap(t *testing.T) {
	if race.Enabled {
		t.Skip("the model is of the program as it is used")
	}
	for _, c := range []struct {
		name          string
		control, link time.Duration
		// confirming is what the model does not have: a switch confirms that it has
		// all parts of a change before it is told to make it.
		confirming time.Duration
	}{
		{"near controller", 0, 2 * time.Millisecond, 0},
		{"far controller", 4 * time.Millisecond, time.Millisecond, 8 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, radios := crowd(t, lab.MobilityOptions{ControlDelay: c.control, Link: delayline.Params{Delay: c.link}})
			gaps, theirs, r := w.savingGaps(radios)
			// The request travels to the controller; from there on it is the model's.
			// The stream's own interval is half a millisecond on average.
			latencies := route.Latency(slices.Repeat([]time.Duration{c.control}, 3), slices.Repeat([]time.Duration{c.link}, 2))
			model := c.control + latencies[2] + 500*time.Microsecond
			p50 := gaps[len(gaps)/2]
			t.Logf("stream: %v", r)
			t.Logf("unreachable: p50 %v, p90 %v, longest %v; model from the lab's latencies %v; the service's own, for the rules alone, p50 %v",
				p50, gaps[len(gaps)*9/10], gaps[len(gaps)-1], model, theirs[len(theirs)/2])
			if limit := model + c.confirming + 5*time.Millisecond; p50 > limit {
				t.Errorf("half of the gaps are longer than %v: the model, %v until changes are confirmed, and 5 ms", limit, c.confirming)
			}
			if r.doubled+r.copies > 0 {
				t.Errorf("saving sent %d packets twice", r.doubled+r.copies)
			}
			w.compareRules()
		})
	}
}

// savingGaps measures for how long a device cannot be reached, and what the service
// says it should be; both are sorted. Gaps in which a core stood still are left out.
func (w *world) savingGaps(radios []*radio) (gaps, theirs []time.Duration, r report) {
	w.t.Helper()
	p := newPhone(1, 1)
	w.register("open", p)
	mac, ctx := p.macs[0], w.t.Context()
	if err := p.join(ctx, radios[0], mac); err != nil {
		w.t.Fatal(err)
	}
	s := w.streamToRadios(radios, netip.AddrPortFrom(p.ip, 5000), 1000)
	w.eventually("packets arrive", func() bool { return s.count() > 1000 })
	var all [][2]time.Time // from the request to the first packet at the new place
	for n := range handovers {
		to := []int{2, 0}[n%2] // the join is the root
		asked := time.Now()
		if err := p.move(ctx, radios[to], mac); err != nil {
			w.t.Fatal(err)
		}
		var first arrival
		w.eventually("packets come to the new place", func() (ok bool) { first, ok = s.since(asked, to); return ok })
		all = append(all, [2]time.Time{asked, first.at})
		came := s.count()
		w.eventually("the handover is over", func() bool { return w.done(p.id, radios[to]) && s.count() > came+50 })
		theirs = append(theirs, time.Duration(w.handovers(p.id, 1)[0].Parts.Model))
	}
	r = s.stop()
	for _, gap := range all {
		if len(s.witness.Stalls(gap[0], gap[1], 0)) == 0 {
			gaps = append(gaps, gap[1].Sub(gap[0]))
		}
	}
	w.t.Logf("a core stood still in %d of %d gaps, which are left out", len(all)-len(gaps), len(all))
	if len(gaps) < len(all)/4 {
		w.t.Fatal("nothing is measured: cores stood still nearly always")
	}
	slices.Sort(gaps)
	slices.Sort(theirs)
	return gaps, theirs, r
}

// TestSavingFromTwoRadios moves a device that hears its old place until it is served at the new
// one, over links on which packets are under way for long: all of them come, and it is never
// without them. Some of its switches hear of a change sooner than others.
func TestSavingFromTwoRadios(t *testing.T) {
	w, radios := crowd(t, lab.MobilityOptions{ControlDelay: time.Millisecond, Link: delayline.Params{Delay: 20 * time.Millisecond}})
	for _, core := range []string{"core1", "core2"} {
		if err := w.lab.SetLinkParams(t.Context(), "control-"+core, delayline.Params{Delay: 15 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	p := newPhone(1, 4)
	w.register("open", p)
	if err := p.join(t.Context(), radios[0], p.macs[0]); err != nil {
		t.Fatal(err)
	}
	s := w.streamToRadios(radios, netip.AddrPortFrom(p.ip, 5000), 1000)
	w.eventually("packets arrive", func() bool { return s.count() > 500 })
	for n := range 12 {
		to := []int{1, 3, 2, 0}[n%4]
		if err := p.move(t.Context(), radios[to], p.macs[to]); err != nil {
			t.Fatal(err)
		}
		came := s.count()
		w.eventually("the handover is over", func() bool { return w.done(p.id, radios[to]) && s.count() > came+100 })
	}
	r := s.stop()
	t.Logf("%v", r)
	requireOnce(t, r)
	w.compareRules()
}

// TestSeamlessNetwork moves a device with two interfaces to and fro: every packet
// comes by one of them or by both, and none by one of them twice. The device's own
// part, which makes one of both, is another test's.
func TestSeamlessNetwork(t *testing.T) {
	for name, o := range map[string]lab.MobilityOptions{"tree": {}, "mesh": {Cross: true}} {
		t.Run(name, func(t *testing.T) {
			w, radios := crowd(t, o)
			w.put("classes/seamless", plugin.ClassSpec{Policy: "seamless", Trigger: "open", Overlap: "100ms"})
			p := newPhone(1, 4)
			w.register("seamless", p)
			if err := p.join(t.Context(), radios[0], p.macs[0]); err != nil {
				t.Fatal(err)
			}
			s := w.streamToRadios(radios, netip.AddrPortFrom(p.ip, 5000), 1000)
			w.eventually("packets arrive", func() bool { return s.count() > 500 })
			bicast := 0
			for n := range handovers {
				to := []int{1, 3, 2, 0}[n%4]
				if err := p.move(t.Context(), radios[to], p.macs[to]); err != nil {
					t.Fatal(err)
				}
				w.eventually("the old place is given up", func() bool { return !w.anyBicast([]*phone{p}) })
				rec := w.handovers(p.id, 1)[0]
				if rec.Bicast {
					bicast++
				} else if rec.Fallback == "" {
					t.Errorf("no bicast, and no reason: %+v", rec)
				}
			}
			r := s.stop()
			t.Logf("%d handovers, %d with bicast: %v", handovers, bicast, r)
			requireOnce(t, r)
			if bicast == 0 {
				t.Error("it was never served at two places")
			}
			w.compareRules()
		})
	}
}

// TestSeveralRoots lets packets come in by either root, whichever the device's
// nearest is.
func TestSeveralRoots(t *testing.T) {
	w, radios := crowd(t, lab.MobilityOptions{Roots: 2})
	p := newPhone(1, 4)
	w.register("open", p)
	if err := p.join(t.Context(), radios[0], p.macs[0]); err != nil {
		t.Fatal(err)
	}
	for i, r := range radios {
		if i > 0 {
			if err := p.move(t.Context(), r, p.macs[i]); err != nil {
				t.Fatal(err)
			}
		}
		for _, via := range []string{"192.0.2.1", "198.51.100.1"} {
			w.run(w.domain.Server, "ip", "route", "replace", "default", "via", via)
			w.servedAt(radios, p.ip, place(i, p.macs[i]))
		}
	}
	if err := w.lab.SetLink(t.Context(), "root-core1", false); err != nil {
		t.Fatal(err)
	}
	if err := p.move(t.Context(), radios[0], p.macs[0]); err != nil {
		t.Fatal(err)
	}
	w.eventually("packets take the way that is left", func() bool {
		return slices.Equal(w.delivered(radios, p.ip), []string{place(0, p.macs[0])})
	})
}

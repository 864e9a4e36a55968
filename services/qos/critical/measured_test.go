package critical

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/match"
)

// round has flows send for a second, and does what follows from a reading of counters.
func (w *world) round(rates map[string]uint64) {
	w.t.Helper()
	w.carry(rates)
	w.update(w.t.Context())
	w.Guard.Sweep(w.t.Context())
}

// A flow that was refused is not accepted because it sends: neither what its meters have
// dropped, nor what a full link has, is room for it.
func TestSendingMakesNoRoom(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.dead[[2]int{1, 3}], w.net.used[port(1, 2)] = true, 13*mbit })
	r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	if r.State != StateBestEffort {
		t.Fatalf("accepted beside 13 of 15 Mbit/s: %+v", r)
	}
	w.net.change(func() { w.net.used[port(1, 2)] = 15 * mbit }) // with what gets through of it
	for round := range 10 {
		w.round(map[string]uint64{"flow/" + r.ID: 14_400_000})
		if r = w.of([2]int{1, 1}, [2]int{4, 1}, 1); r.State != StateBestEffort {
			t.Fatalf("accepted after %d rounds: %+v", round+1, r)
		}
	}
	w.net.change(func() { w.net.used[port(1, 2)] = 7_750_000 }) // 4 of others, the rest passes the meter
	for range 3 {
		w.round(map[string]uint64{"flow/" + r.ID: 10_400_000})
	}
	if r = w.of([2]int{1, 1}, [2]int{4, 1}, 1); r.State != StateAccepted {
		t.Errorf("not accepted with 11 Mbit/s left: %+v", r)
	}
}

// What is refused is held to what plain traffic leaves beside promises, on each link of its way,
// that to its host included, as that changes; where nothing is promised it has a fair share.
func TestRefusedTakesNothingFromAccepted(t *testing.T) {
	w := newWorld(t)
	inner, host := port(1, 2), hostAt(4, 1)
	w.net.change(func() { w.net.dead[[2]int{1, 3}] = true })
	accepted := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	plain := func(rate uint64) {
		w.net.change(func() {
			for _, at := range []network.PortRef{inner, host} {
				w.net.used[at] = rate + 10*mbit
			}
		})
		for range 2 { // two readings: 10 s by default
			w.round(map[string]uint64{"flow/" + accepted.ID: 10 * mbit})
		}
	}
	plain(3 * mbit)
	refused := w.placed([2]int{1, 2}, [2]int{4, 1}, 2)
	if refused.State != StateBestEffort {
		t.Fatalf("accepted beside 10 and 3 of 15 Mbit/s: %+v", refused)
	}
	check := func(when string, want uint32) {
		t.Helper()
		for _, at := range []network.PortRef{inner, host} {
			if got := w.Guard.Kbit(at); got < want || got > want+1 {
				t.Errorf("%s: best effort is let %d kbit/s out of %v, want %d", when, got, at, want)
			}
		}
	}
	check("beside 3 Mbit/s of plain traffic, from its first packet on", 1400)
	plain(4 * mbit)
	check("beside 4 Mbit/s", 400)
	plain(6 * mbit)
	check("beside more than is left", 300)
	plain(0)
	check("beside none", 4400)
	w.placer.end(w.flows.byID[accepted.ID], "test")
	w.net.change(func() { w.net.used[inner], w.net.used[host] = 14*mbit, 14*mbit })
	for range 2 {
		w.round(nil)
	}
	check("where nothing is promised", 3750)
}

// An accepted flow on a link that fills says that it is oversubscribed as long as it is, by two
// readings, and an event tells it once.
func TestOversubscribed(t *testing.T) {
	w := newWorld(t)
	var told atomic.Int64
	w.Publish = func(kind string, _ any) {
		if kind == "flow.oversubscribed" {
			told.Add(1)
		}
	}
	w.net.change(func() { w.net.dead[[2]int{1, 3}], w.net.used[port(1, 2)] = true, 10*mbit })
	r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	if r.State != StateBestEffort { // 5 of 15 Mbit/s are left, and it is first heard of at a time without plain traffic
		t.Fatalf("%+v", r)
	}
	w.net.change(func() { w.net.used[port(1, 2)] = 0 })
	for range 3 {
		w.round(nil)
	}
	state := func() State { return w.of([2]int{1, 1}, [2]int{4, 1}, 1).State }
	if state() != StateAccepted {
		t.Fatalf("%s on an empty link", state())
	}
	send := map[string]uint64{"flow/" + r.ID: 10 * mbit}
	w.net.change(func() { w.net.used[port(1, 2)] = 15 * mbit }) // of 18 that are sent to it
	w.round(send)
	w.round(send)
	if state() != StateOversubscribed {
		t.Errorf("%s after two readings of a full link", state())
	}
	w.round(send)
	w.round(send)
	if told.Load() != 1 || state() != StateOversubscribed {
		t.Errorf("told %d times, %s", told.Load(), state())
	}
	w.net.change(func() { w.net.used[port(1, 2)] = 12 * mbit })
	w.round(send)
	if state() != StateAccepted {
		t.Errorf("%s when the link is not full any more", state())
	}
}

// While it is not known what a link carries nothing is promised there; a flow that is decided
// about once is decided about when it is.
func TestDecidedWhenMeasured(t *testing.T) {
	for _, c := range []struct {
		used  uint64
		state State
		waits bool
	}{{0, StateAccepted, false}, {9 * mbit, StateBestEffort, false}} {
		w := newWorld(t)
		d, faults := Spec{Name: "once", Rate: 10 * mbit, Once: true, Match: match.Flow{TCPDst: "5001"}}.Parse()
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if err := w.Definitions.Remove(t.Context(), "bulk", 0); err != nil {
			t.Fatal(err)
		}
		if err := w.define(d); err != nil {
			t.Fatal(err)
		}
		w.net.change(func() { w.net.dead[[2]int{1, 3}], w.net.unknown = true, true })
		r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
		if r.State != StateBestEffort || !strings.Contains(r.Reason, "not measured yet") {
			t.Fatalf("placed on links that nobody has measured: %+v", r)
		}
		w.net.change(func() { w.net.used[port(1, 2)], w.net.unknown = c.used, false })
		w.update(context.Background())
		f := w.flows.byID[r.ID]
		if r = f.record(); r.State != c.state || f.status().waits != c.waits || strings.Contains(r.Reason, "not measured") {
			t.Errorf("with %d measured: %+v, waits: %v", c.used, r, f.status().waits)
		}
	}
}

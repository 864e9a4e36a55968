package critical

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/match"
)

// flowMeters are the meters of a flow itself, by switch.
func (w *world) flowMeters(r Record) map[network.PortRef]uint32 {
	w.t.Helper()
	rates := map[uint32]uint32{}
	for _, key := range meterKeys {
		for _, m := range w.rules.Program(key + r.ID).Meters {
			rates[m.ID] = m.Bands[0].Rate
		}
	}
	used := map[network.PortRef]uint32{}
	for _, x := range w.rules.Program("flow/" + r.ID).Rules {
		if x.Meter == 0 {
			continue
		}
		rate, there := rates[x.Meter]
		if !there {
			w.t.Errorf("rule %v uses meter %d, which is not the flow's", x.Match, x.Meter)
		}
		used[network.PortRef{Switch: x.Switch, Port: x.Actions[0].Arg}] = rate
	}
	return used
}

// An accepted flow passes a meter of its rate where it enters, and none of its own while
// it is promised nothing; its answers pass one if its definition says how much they are.
func TestAcceptedIsMetered(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.dead[[2]int{1, 3}] = true })
	first := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	if m := w.flowMeters(first); len(m) != 1 || m[port(1, 2)] != 10_000 {
		t.Errorf("a flow of 10 Mbit/s has meters of kbit/s %v", m)
	}
	waiting := w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	if len(w.rules.Program("police/"+waiting.ID).Meters) != 0 {
		t.Error("a flow that is promised nothing has a meter of its own")
	}
	w.placer.end(w.flows.byID[first.ID], "test")
	if len(w.rules.Program("police/"+first.ID).Meters) != 0 {
		t.Error("the meter of a flow that has ended is left")
	}
	w.retry(t.Context())
	if m := w.flowMeters(w.of([2]int{1, 2}, [2]int{4, 2}, 2)); m[port(1, 2)] != 10_000 {
		t.Errorf("accepted later it has meters of kbit/s %v", m)
	}

	reverse := units.Rate(2 * mbit)
	d, faults := Spec{Name: "call", Rate: mbit, ReverseRate: &reverse, Match: match.Flow{TCPDst: "5002"}}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if err := w.define(d); err != nil {
		t.Fatal(err)
	}
	h := headers([2]int{1, 3}, [2]int{4, 3}, 3)
	h.DstPort = 5002
	held := fakeHeld{make(chan string, 1)}
	w.handlePacket(hostAt(1, 3), h, func() (Held, error) { return held, nil })
	<-held.done
	key, _ := match.HeaderOf(h)
	call := w.flows.find(key).record()
	if m := w.flowMeters(call); len(m) != 2 || m[port(1, 2)] != 1000 || m[port(4, 2)] != 2000 {
		t.Errorf("a flow of 1 Mbit/s with answers of 2 has meters of kbit/s %v", m)
	}
}

// carried has a flow send at a rate until two readings show it.
func (w *world) carried(r Record, rate uint64) Record {
	for range pressureReadings + 1 {
		w.carry(map[string]uint64{"flow/" + r.ID: rate})
		w.observe(w.t.Context())
	}
	return w.flows.byID[r.ID].record()
}

// What a flow sends beyond its promise is told, and does not pass for what it carries: its
// meter drops it.
func TestExcessIsTold(t *testing.T) {
	w := newWorld(t)
	var told atomic.Int64
	w.Publish = func(kind string, _ any) {
		if kind == "flow.exceeds" {
			told.Add(1)
		}
	}
	r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	if r = w.carried(r, 10*mbit); r.Excess != 0 || r.Reason != "" || told.Load() != 0 {
		t.Errorf("a flow that keeps to its promise: %+v, told %d times", r, told.Load())
	}
	r = w.carried(r, 30*mbit)
	if r.Excess != 20*mbit || !strings.Contains(r.Reason, "drops") || r.State != StateAccepted {
		t.Errorf("a flow that sends three times its promise: %+v", r)
	}
	if told.Load() != 1 {
		t.Errorf("told %d times", told.Load())
	}
	w.net.change(func() { w.net.used[port(1, 2)] = 10 * mbit })
	if got := w.Book.MaxAvailable(port(1, 2), w.flows.byID[r.ID].promiseKey()); got != 15*mbit {
		t.Errorf("of 15 Mbit/s %d are left beside what its meter passes", got)
	}
	if r = w.carried(r, 9*mbit); r.Excess != 0 || r.Reason != "" {
		t.Errorf("afterwards: %+v", r)
	}
}

// Where a switch takes no meter, what a flow sends beyond its promise is in the way of
// others, which are moved, and the flow says what is wrong.
func TestExcessWithoutMeters(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.capacity = 25 * mbit })
	w.rules.OnApply = func(_ context.Context, key string) error {
		if strings.HasPrefix(key, "police") {
			return network.ErrRefused
		}
		return nil
	}
	rude := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	polite := w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	if rude.State != StateAccepted || through(polite) != "124" {
		t.Fatalf("%+v, %+v", rude, polite)
	}
	w.net.change(func() { w.net.used[port(1, 2)] = 25 * mbit })
	for range 3 * pressureReadings {
		w.carry(map[string]uint64{"flow/" + rude.ID: 20 * mbit, "flow/" + polite.ID: 10 * mbit})
		w.observe(t.Context())
		w.relieve(t.Context())
	}
	if r := w.of([2]int{1, 2}, [2]int{4, 2}, 2); through(r) != "1354" {
		t.Errorf("the polite flow stays: %+v", r)
	}
	if r := w.of([2]int{1, 1}, [2]int{4, 1}, 1); through(r) != "124" || !strings.Contains(r.Reason, "takes no meter") {
		t.Errorf("the other: %+v", r)
	}
}

// Meters keep their numbers over a restart: no rule is written anew because of them.
func TestMetersKeepTheirNumbers(t *testing.T) {
	w := newWorld(t)
	first := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	second := w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	w.placer.end(w.flows.byID[first.ID], "test")
	before := w.rules.Program("police/" + second.ID).Meters
	w.stop()
	w.start()
	after := w.rules.Program("police/" + second.ID).Meters
	if len(before) != 1 || len(after) != 1 || before[0].ID != after[0].ID {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if third := w.placed([2]int{1, 1}, [2]int{4, 1}, 1); w.rules.Program("police/" + third.ID).Meters[0].ID == after[0].ID {
		t.Error("two flows have one meter")
	}
}

func TestNumbers(t *testing.T) {
	var n numbers
	for want := 1; want <= 3; want++ {
		if got := n.take(0); got != want {
			t.Errorf("%d instead of %d", got, want)
		}
	}
	n.free(2)
	for i, c := range []struct{ ask, want int }{{7, 7}, {7, 2}, {0, 4}, {-1, 5}, {maxFlows + 1, 6}, {0, 8}} {
		if got := n.take(c.ask); got != c.want {
			t.Errorf("step %d: asked for %d, got %d instead of %d", i, c.ask, got, c.want)
		}
	}
}

// No meter of a flow has the number of one of a link, and all fit into 16 bits.
func TestMeterNumbers(t *testing.T) {
	seen := map[uint32]bool{}
	for n := 1; n <= maxFlows; n++ {
		for d := range directions {
			id := (&flow{stored: stored{Number: n}}).meterID(d)
			if id == 0 || id >= guard.MeterBase && id < 2*guard.MeterBase || id > 0xffff || seen[id] {
				t.Fatalf("flow %d, direction %d: meter %#x", n, d, id)
			}
			seen[id] = true
		}
	}
}

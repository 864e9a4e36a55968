package critical

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// gate lets nobody pass before some wait together, and counts how many have.
type gate struct {
	mu            sync.Mutex
	waiting, most int
	open          chan struct{}
	opened        sync.Once
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

// pass waits until together have come, and reports whether they have.
func (g *gate) pass(together int) bool {
	g.mu.Lock()
	g.waiting++
	if g.most = max(g.most, g.waiting); g.most >= together {
		g.opened.Do(func() { close(g.open) })
	}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waiting--
	}()
	select {
	case <-g.open:
		return true
	case <-time.After(30 * time.Second):
		return false
	}
}

// Flows end side by side, but not more than a bounded number: their switches answer one
// for all of them.
func TestWithdrawnFlowsEndTogether(t *testing.T) {
	w := newWorld(t)
	const flows = 3 * maxAtOnce
	for i := range flows {
		w.placed([2]int{1, 1}, [2]int{4, 1}, uint16(i+1))
	}
	g := newGate()
	w.rules.OnRemove = func(key string) error {
		if strings.HasPrefix(key, "flow/") && !g.pass(maxAtOnce) {
			t.Error("flows end one after the other")
		}
		return nil
	}
	if err := w.Definitions.Remove(t.Context(), "bulk", 0); err != nil {
		t.Fatal(err)
	}
	if len(w.Flows()) != 0 || len(w.Book.Promises()) != 0 {
		t.Errorf("%d flows and %d promises are left", len(w.Flows()), len(w.Book.Promises()))
	}
	if g.most != maxAtOnce {
		t.Errorf("%d at once, want %d", g.most, maxAtOnce)
	}
}

// A flow that somebody else is changing does not hold up those behind it.
func TestReviewPassesFlowsThatAreBusy(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.capacity = 40 * mbit })
	first := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	busy := &w.flows.byID[first.ID].changing
	busy.Lock()
	done := sync.OnceFunc(busy.Unlock)
	defer done()
	w.net.change(func() { w.net.dead[[2]int{2, 4}] = true })
	w.NetworkChanged(network.Event{Kind: network.LinkDown})
	w.eventually("the second flow is moved", func() bool { return through(w.of([2]int{1, 2}, [2]int{4, 2}, 2)) == "1354" })
	done()
	w.eventually("the first flow, too", func() bool { return through(w.of([2]int{1, 1}, [2]int{4, 1}, 1)) == "1354" })
}

// A switch that does not take the rules for first packets is told of until it does.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	w.rules.Refuses = map[openflow.DatapathID]error{3: errors.New("table full"), 2: errors.New("no such field")}
	w.punts.install(t.Context())
	if all := w.punts.Refusals(); len(all) != 2 || all[0] != (Refusal{2, "no such field"}) || all[1] != (Refusal{3, "table full"}) {
		t.Errorf("%+v", all)
	}
	w.rules.Refuses = nil
	w.punts.install(t.Context())
	if all := w.punts.Refusals(); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
}

// Best effort keeps a little of a link that is promised as a whole, and no more than a
// promise may lack beside what else it has to do without.
func TestFloor(t *testing.T) {
	w := newWorld(t)
	at := port(1, 2)
	w.Book.Restore(reserve.Promise{Key: reserve.Key{ID: "all"}, Shares: []reserve.Share{{Link: at, Rate: 15 * mbit}}})
	w.Guard.Ensure(t.Context(), []network.PortRef{at})
	if got := w.Guard.Kbit(at); got != 300 {
		t.Errorf("%d kbit/s are left of 15 Mbit/s", got)
	}
	const noise, reading, uncounted = 1, 0.12, 100 * 24.0 / 1514 // as the comment on guard.Floor says
	if guard.Floor+noise+reading+uncounted > tolerance {
		t.Errorf("%v %% of a promise may be lacking, %v %% are tolerated", guard.Floor+noise+reading+uncounted, tolerance)
	}
}

// BenchmarkReplaceThousandFlows moves all of them, whose traffic is known, from one path
// to the other when it dies.
func BenchmarkReplaceThousandFlows(b *testing.B) {
	w := newWorld(b)
	w.net.change(func() { w.net.capacity = 100_000 * mbit })
	for i := range 1000 {
		w.placed([2]int{1, 1}, [2]int{4, 1}, uint16(i+1))
	}
	for range 60 { // seconds: more than the flows took to be placed
		w.carry(nil)
		w.observe(b.Context())
	}
	dead, alive := [2]int{2, 4}, [2]int{3, 5}
	for b.Loop() {
		w.net.change(func() { w.net.dead[dead], w.net.dead[alive] = true, false })
		w.review(b.Context())
		dead, alive = alive, dead
	}
	for _, f := range w.flows.placed() {
		if r := f.record(); r.State != StateAccepted || r.Moves == 0 {
			b.Fatalf("%+v", r)
		}
	}
}

package subflows

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// metered are the ports out of which rules of the only subflow pass the guard's meter.
func (w *world) metered() (ports []network.PortRef) {
	for _, r := range w.rules.Program(w.flows.all()[0].key()).Rules {
		out := network.PortRef{Switch: r.Switch, Port: r.Actions[len(r.Actions)-1].Arg}
		switch r.Meter {
		case 0:
		case guard.MeterBase + out.Port:
			ports = append(ports, out)
		default:
			w.t.Errorf("rule %+v", r)
		}
	}
	slices.SortFunc(ports, network.PortRef.Compare)
	return ports
}

// eventually waits until meters are passed out of these ports and no others.
func (w *world) eventually(want ...network.PortRef) {
	w.t.Helper()
	w.soon(fmt.Sprintf("meters out of %v", want), func() bool { return slices.Equal(w.metered(), want) }, func() any { return w.metered() })
}

func (w *world) promise(id string, enforced bool, at network.PortRef, rate uint64) {
	w.Book.Restore(reserve.Promise{Key: reserve.Key{Owner: "test", ID: id}, Enforced: enforced, Shares: []reserve.Share{{Link: at, Rate: rate}}})
}

// Where something is promised a subflow passes the meter that leaves it, also if it was there
// first, as long as it is promised, and after a restart; not where queues enforce the promise.
func TestPromiseHoldsSubflowBack(t *testing.T) {
	w := newWorld(t)
	by := w.placed(a, b, 1000, 1)
	out, back := port(1, by), port(5, by)
	if ports := w.metered(); len(ports) > 0 {
		t.Fatalf("meters out of %v, where nothing is promised", ports)
	}
	w.promise("class", true, out, 2*mbit)
	w.promise("flow", false, out, 6*mbit)
	w.eventually(out)
	if kbit := w.Guard.Kbit(out); kbit != 1600 { // 96 % of 10 Mbit/s, less 8
		t.Errorf("%d kbit/s are left", kbit)
	}
	w.promise("answers", false, back, mbit)
	w.eventually(out, back)
	w.stop()
	w.rules.Restart()
	w.start()
	if at := w.rules.AtReady()[w.flows.all()[0].key()]; len(at.Rules) == 0 || !slices.ContainsFunc(at.Rules, func(r network.Rule) bool { return r.Meter == guard.MeterBase+out.Port }) {
		t.Errorf("after a restart it is declared as %+v", at)
	}
	w.promise("flow", false, out, 6*mbit) // the book is another
	w.eventually(out)
	w.Book.Release(reserve.Key{Owner: "test", ID: "flow"})
	w.eventually()
	if w.way(1000) != by {
		t.Errorf("it has gone from %d to %d", by, w.way(1000))
	}
	if moves := w.Subflows()[0].Moves; moves != 0 {
		t.Errorf("%d moves", moves)
	}
}

// A meter that a switch did not take in time is made later; until then the subflow does not count as
// held back.
func TestMeterComesLate(t *testing.T) {
	w := newWorld(t)
	by := w.placed(a, b, 1000, 1)
	out := port(1, by)
	w.rules.SetOnApply(func(_ context.Context, key string) error {
		if strings.HasPrefix(key, "guard/") {
			return context.DeadlineExceeded
		}
		return nil
	})
	w.promise("flow", false, out, 6*mbit)
	w.updateAllMeters(t.Context())
	if held := w.meteredLinks(); len(held) > 0 || len(w.metered()) > 0 {
		t.Errorf("held on %v by meters of %v, where the switch has taken none", held, w.metered())
	}
	w.rules.SetOnApply(nil)
	w.updateAllMeters(t.Context())
	if held := w.meteredLinks(); !slices.Equal(held, w.metered()) || len(held) != 1 {
		t.Errorf("held on %v by meters of %v", held, w.metered())
	}
}

// What is promised while a subflow's rules are written holds it back as soon as they are.
func TestPromiseDuringPlacement(t *testing.T) {
	w := newWorld(t)
	var once sync.Once
	w.rules.SetOnApply(func(_ context.Context, key string) error {
		if strings.HasPrefix(key, keyPrefix) {
			once.Do(func() {
				for _, by := range []int{2, 3, 4} {
					w.promise(fmt.Sprint(by), false, port(1, by), 6*mbit)
				}
				pause.For(10*meterDelay, "the service to have looked for those to be held back")
			})
		}
		return nil
	})
	by := w.placed(a, b, 1000, 1)
	w.eventually(port(1, by))
}

// A path that has been found for a connection is not taken where something has been promised since.
func TestPromiseOnFoundPath(t *testing.T) {
	w := newWorld(t)
	first := w.placed(a, b, 1000, 1)
	w.flows.mu.Lock()
	next := int(w.flows.connections[connection{addr(5, 1), 1}].left[0].hops[1].Switch)
	w.flows.mu.Unlock()
	w.promise("flow", true, port(1, next), 10*mbit)
	if by := w.placed(a, b, 1001, 1); by == next || by == first {
		t.Errorf("the first goes by %d, the second by %d, where all of %d is promised", first, by, next)
	}
}

// What a subflow carries is room for promises by the estimate, in the direction in which it
// carries it; and not for further subflows.
func TestSubflowYields(t *testing.T) {
	w := newWorld(t)
	by := w.placed(a, b, 1000, 1)
	f := w.flows.all()[0]
	out, back := port(1, by), port(5, by)
	w.load(1, by, 9*mbit)
	w.load(5, by, 9*mbit)
	for range 3 {
		w.rules.Carry(map[string]uint64{f.key(): 8 * mbit}) // in both directions
		w.observe(t.Context())
	}
	for _, at := range []network.PortRef{out, back} {
		if free := w.Book.EstimateFree(at); free != 9*mbit {
			t.Errorf("%d bit/s are free for promises on the link from %v", free, at)
		}
	}
	if l := w.placer.chooser.loads.widths(time.Now(), nil).infoOf(out); l.free != mbit || l.shared != 9*mbit || l.subflows != 1 {
		t.Errorf("for further subflows: %+v", l)
	}
	w.placer.end(f, "test")
	if free := w.Book.EstimateFree(out); free != mbit {
		t.Errorf("%d bit/s are free after its end", free)
	}
}

// A subflow counts where it goes until it is seen to carry nothing, and when it carries again: who
// opens many that are silent keeps nobody from a link.
func TestSilentSubflow(t *testing.T) {
	w := newWorld(t)
	by := w.placed(a, b, 1000, 1)
	f := w.flows.all()[0]
	count := func(when string, want uint64) {
		t.Helper()
		for _, at := range []network.PortRef{port(1, by), port(5, by)} {
			if got := w.placer.chooser.loads.widths(time.Now(), nil).infoOf(at).subflows; got != want {
				t.Errorf("%s: %d subflows on the link from %v, want %d", when, got, at, want)
			}
		}
	}
	count("before a reading", 1)
	for range 2 {
		w.rules.Carry(map[string]uint64{f.key(): 0})
		w.observe(t.Context())
	}
	count("silent", 0)
	w.rules.Carry(map[string]uint64{f.key(): mbit})
	w.observe(t.Context())
	count("carrying again", 1)
}

// A subflow that has carried more against its SYN says so.
func TestReverse(t *testing.T) {
	w := newWorld(t)
	w.placed(a, b, 1000, 1)
	f, now := w.flows.all()[0], time.Unix(1_800_000_000, 0)
	f.counters[forward].Read(10, now)
	f.counters[reverse].Read(1000, now)
	if r := w.Subflows()[0]; !r.Reverse || r.Bytes != 1000 {
		t.Errorf("%+v", r)
	}
	f.counters[forward].Read(2000, now.Add(time.Second))
	f.counters[reverse].Read(1100, now.Add(time.Second))
	if r := w.Subflows()[0]; r.Reverse || r.Bytes != 2000 {
		t.Errorf("%+v", r)
	}
}

// Links of a path are told by direction, each once.
func TestLinksOfDirections(t *testing.T) {
	hops := []network.Hop{{Switch: 1, In: 1, Out: 12}, {Switch: 2, In: 21, Out: 25}, {Switch: 5, In: 52, Out: 1}}
	at := func(sw openflow.DatapathID, port uint32) network.PortRef {
		return network.PortRef{Switch: sw, Port: port}
	}
	if got := links(hops, forward); !slices.Equal(got, []network.PortRef{at(1, 12), at(2, 25)}) {
		t.Errorf("there %v", got)
	}
	if got := links(hops, reverse); !slices.Equal(got, []network.PortRef{at(2, 21), at(5, 52)}) {
		t.Errorf("back %v", got)
	}
}

package critical

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// The shortest path first, then one with enough available, then none: then the path
// of fewest hops, with the reason, through meters that leave to others what is theirs.
func TestPlacement(t *testing.T) {
	w := newWorld(t)
	from, to := [2]int{1, 1}, [2]int{4, 1}
	if r := w.placed(from, to, 1); r.State != StateAccepted || through(r) != "124" {
		t.Fatalf("first flow: %+v", r)
	}
	if r := w.placed([2]int{1, 2}, [2]int{4, 2}, 2); r.State != StateAccepted || through(r) != "1354" {
		t.Fatalf("second flow: %+v", r)
	}
	third := w.placed([2]int{1, 3}, [2]int{4, 3}, 3)
	if third.State != StateBestEffort || through(third) != "124" || third.Reason == "" {
		t.Fatalf("third flow: %+v", third)
	}
	at := port(1, 2)
	meters := w.rules.Program("guard/" + at.String()).Meters
	if len(meters) != 1 || meters[0].Bands[0].Rate != 4400 {
		t.Fatalf("best effort gets %+v of a link of 15 Mbit/s with 10 promised", meters)
	}
	for _, r := range w.rules.Program("flow/" + third.ID).Rules {
		if r.Meter != guard.MeterBase+r.Actions[0].Arg {
			t.Errorf("rule %+v has meter %d", r, r.Meter)
		}
	}
	if !strings.Contains(third.Reason, "available") {
		t.Errorf("reason %q", third.Reason)
	}
}

// A host that sends takes acknowledgements, which do not keep it from being promised all
// of its link; the answers to one's own flow are expected there, not promised.
func TestAcknowledgementsBesidePromise(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.capacity = 10 * mbit })
	w.placed([2]int{1, 1}, [2]int{2, 1}, 1)
	w.net.change(func() { w.net.used[hostAt(1, 1)] = 220_000 })
	if r := w.placed([2]int{3, 1}, [2]int{1, 1}, 2); r.State != StateAccepted {
		t.Errorf("%+v", r)
	}
}

// Of paths of as many hops, the one with most room is taken.
func TestWidestOfTheShortest(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.extra, w.net.used[port(1, 2)] = [][2]int{{3, 4}}, 3*mbit })
	if r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1); through(r) != "134" || r.State != StateAccepted {
		t.Errorf("%+v", r)
	}
}

// The rules of a flow lead its packets to the host and the answers back.
func TestProgramLeadsThereAndBack(t *testing.T) {
	w := newWorld(t)
	r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	h, _ := match.HeaderOf(headers([2]int{1, 1}, [2]int{4, 1}, 1))
	follow := func(h match.Header, at network.PortRef) network.PortRef {
		for range 10 {
			next := network.PortRef{}
			for _, x := range w.rules.Program("flow/" + r.ID).Rules {
				if x.Switch == at.Switch && x.Match == h.Match(at.Port) {
					next = network.PortRef{Switch: at.Switch, Port: x.Actions[0].Arg}
				}
			}
			if w.net.IsEdge(next) {
				return next
			}
			l, _ := w.net.Topology().LinkFrom(next)
			at = l.To
		}
		return at
	}
	if end := follow(h, hostAt(1, 1)); end != hostAt(4, 1) {
		t.Errorf("packets end at %v", end)
	}
	if end := follow(h.Reverse(), hostAt(4, 1)); end != hostAt(1, 1) {
		t.Errorf("answers end at %v", end)
	}
}

func TestNotCritical(t *testing.T) {
	w := newWorld(t)
	hold := func() (Held, error) { t.Fatal("the packet was held"); return nil, nil }
	other := headers([2]int{1, 1}, [2]int{4, 1}, 1)
	other.DstPort = 80
	fragment := headers([2]int{1, 1}, [2]int{4, 1}, 1)
	fragment.MoreFragments = true
	group := headers([2]int{1, 1}, [2]int{4, 1}, 1)
	group.EthDst = openflow.MAC{1, 0, 0x5e, 0, 0, 1}
	virtual := headers([2]int{1, 1}, [2]int{3, 1}, 1)
	if err := w.net.SetVirtual("balance", map[netip.Addr]openflow.MAC{virtual.Dst: {}}); err != nil {
		t.Fatal(err)
	}
	for _, h := range []struct {
		name string
		at   network.PortRef
		v    network.Verdict
	}{
		{"another port", hostAt(1, 1), w.handlePacket(hostAt(1, 1), other, hold)},
		{"fragment", hostAt(1, 1), w.handlePacket(hostAt(1, 1), fragment, hold)},
		{"group", hostAt(1, 1), w.handlePacket(hostAt(1, 1), group, hold)},
		{"virtual", hostAt(1, 1), w.handlePacket(hostAt(1, 1), virtual, hold)},
		{"between switches", port(1, 2), w.handlePacket(port(1, 2), headers([2]int{1, 1}, [2]int{4, 1}, 1), hold)},
		{"to its own port", hostAt(1, 1), w.handlePacket(hostAt(1, 1), headers([2]int{1, 1}, [2]int{1, 1}, 1), hold)},
	} {
		if h.v != network.Continue {
			t.Errorf("%s: %v", h.name, h.v)
		}
	}
}

// A destination that has not been heard is looked for; one that is nowhere leaves the
// packet to default forwarding.
func TestUnheardDestination(t *testing.T) {
	w := newWorld(t)
	if r := w.placed([2]int{1, 1}, [2]int{4, 7}, 1); through(r) != "124" || r.State != StateAccepted {
		t.Errorf("%+v", r)
	}
	if _, wait := w.offer([2]int{1, 1}, [2]int{4, 9}, 1); wait() != "forwarded" {
		t.Error("the packet to nobody was not forwarded")
	}
	w.eventually("nothing is left of it", func() bool { return len(w.Flows()) == 1 })
}

// Two requests in the same millisecond are never both promised the last capacity,
// whichever way they are searched and entered: 1,000 repetitions.
func TestSameMillisecond(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.dead[[2]int{1, 3}] = true }) // one way, for one flow
	for round := range 1000 {
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range 2 {
			wg.Go(func() {
				<-begin
				if _, wait := w.offer([2]int{1, 1 + i}, [2]int{4, 1 + i}, 7); wait() != "released" {
					t.Errorf("round %d: a packet was not released", round)
				}
			})
		}
		close(begin)
		wg.Wait()
		states := map[State]int{}
		for i := range 2 {
			states[w.of([2]int{1, 1 + i}, [2]int{4, 1 + i}, 7).State]++
		}
		if states[StateAccepted] != 1 || states[StateBestEffort] != 1 {
			t.Fatalf("round %d: %v", round, states)
		}
		if got := w.Book.Promised(port(1, 2)); got != 10*mbit {
			t.Fatalf("round %d: %d bit/s promised", round, got)
		}
		for _, f := range w.flows.placed() {
			w.placer.end(f, "the round is over")
		}
		if lines := w.Book.Reservations(); len(lines) != 0 {
			t.Fatalf("round %d left %+v", round, lines)
		}
	}
}

func TestSilentFlowGivesUpItsPromise(t *testing.T) {
	w := newWorld(t)
	r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	entry := w.rules.Rules("flow/" + r.ID)[0]
	entry.Name = "flow/" + r.ID
	w.Removed(network.Removed{Installed: entry})
	w.eventually("the flow is gone", func() bool { return len(w.Flows()) == 0 })
	w.eventually("its promise, too", func() bool { return len(w.Book.Promises()) == 0 })
	entries, err := w.store.List(t.Context(), flowPrefix)
	if err != nil || len(entries) != 0 || len(w.rules.Program("flow/"+r.ID).Rules) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// A definition withdrawn while a flow of it is being placed: the first packet goes by
// default forwarding, and nothing is left.
func TestWithdrawnInMidPlacement(t *testing.T) {
	w := newWorld(t)
	reached := make(chan struct{}, 1)
	w.rules.OnApply = func(ctx context.Context, key string) error {
		if !strings.HasPrefix(key, "flow/") {
			return nil
		}
		reached <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	_, wait := w.offer([2]int{1, 1}, [2]int{4, 1}, 1)
	<-reached
	if err := w.Definitions.Remove(t.Context(), "bulk", 0); err != nil {
		t.Fatal(err)
	}
	if what := wait(); what != "forwarded" {
		t.Errorf("the packet was %s", what)
	}
	if n := len(w.Flows()) + len(w.Book.Promises()) + len(w.rules.Program("punt").Rules); n != 0 {
		t.Errorf("%d things are left", n)
	}
	if err := w.Definitions.Remove(t.Context(), "bulk", 0); !errors.Is(err, kit.ErrUnknown) {
		t.Errorf("again: %v", err)
	}
}

func TestDeadLink(t *testing.T) {
	w := newWorld(t)
	first := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	w.net.change(func() { w.net.dead[[2]int{2, 4}] = true })
	w.NetworkChanged(network.Event{Kind: network.LinkDown})
	w.eventually("the flow is moved", func() bool { return through(w.of([2]int{1, 1}, [2]int{4, 1}, 1)) == "1354" })
	r := w.of([2]int{1, 1}, [2]int{4, 1}, 1)
	if r.State != StateAccepted || r.Moves != 1 || r.ID != first.ID || w.Book.Promised(port(1, 2)) != 0 {
		t.Errorf("%+v, still promised %d", r, w.Book.Promised(port(1, 2)))
	}
	w.net.change(func() { w.net.dead[[2]int{3, 5}] = true })
	w.NetworkChanged(network.Event{Kind: network.LinkDown})
	w.eventually("a flow without any way ends", func() bool { return len(w.Flows()) == 0 && len(w.Book.Promises()) == 0 })
}

// A link that fills with traffic of others loses the flow to a path that has room,
// after two readings; without one it stays.
func TestFullLink(t *testing.T) {
	w := newWorld(t)
	r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	w.net.change(func() { w.net.used[port(1, 2)] = 15 * mbit })
	tick := func() {
		w.carry(map[string]uint64{"flow/" + r.ID: 7 * mbit})
		w.observe(t.Context())
		w.relieve(t.Context())
	}
	tick() // the first window begins
	tick()
	if got := through(w.of([2]int{1, 1}, [2]int{4, 1}, 1)); got != "124" {
		t.Fatalf("moved to %s after one reading", got)
	}
	tick()
	if got := through(w.of([2]int{1, 1}, [2]int{4, 1}, 1)); got != "1354" {
		t.Fatalf("not moved: %s", got)
	}
	w.net.change(func() { w.net.used[port(3, 5)] = 15 * mbit })
	tick()
	tick()
	tick()
	if r := w.of([2]int{1, 1}, [2]int{4, 1}, 1); through(r) != "1354" || r.State != StateOversubscribed || !strings.Contains(r.Reason, "0000000000000003/35") {
		t.Errorf("without a better path: %+v", r)
	}
	w.net.change(func() { w.net.used[port(1, 2)] = 0 })
	tick()
	if r := w.of([2]int{1, 1}, [2]int{4, 1}, 1); through(r) != "124" {
		t.Errorf("not moved when there was room at last: %+v", r)
	}
}

// Capacity that comes free goes to the flow that waits for it longest, and its traffic
// does not stand in its way.
func TestRetry(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.dead[[2]int{1, 3}] = true })
	first := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	second := w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	w.placed([2]int{1, 3}, [2]int{4, 3}, 3)
	w.net.change(func() {
		w.net.used[port(1, 2)], w.net.used[port(2, 4)], w.net.used[hostAt(4, 2)] = 5*mbit, 5*mbit, 5*mbit
	})
	w.carry(map[string]uint64{})
	w.observe(t.Context())
	w.carry(map[string]uint64{"flow/" + second.ID: 5 * mbit})
	w.observe(t.Context())
	w.retry(t.Context())
	if r := w.of([2]int{1, 2}, [2]int{4, 2}, 2); r.State != StateBestEffort {
		t.Fatalf("accepted without room: %+v", r)
	}
	w.placer.end(w.flows.byID[first.ID], "test")
	w.retry(t.Context())
	if r := w.of([2]int{1, 2}, [2]int{4, 2}, 2); r.State != StateAccepted || r.Accepted.IsZero() {
		t.Errorf("second flow: %+v", r)
	}
	if r := w.of([2]int{1, 3}, [2]int{4, 3}, 3); r.State != StateBestEffort {
		t.Errorf("third flow: %+v", r)
	}
}

// After a restart rules, promises and meters are as before.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.dead[[2]int{1, 3}] = true })
	w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	before, promises := w.Flows(), w.Book.Promises()
	rules := w.rules.Programs()
	w.stop()
	w.rules = servicetest.NewLedger()
	w.start()
	after := w.Flows()
	if len(after) != 2 || through(after[0]) != through(before[0]) || after[1].State != before[1].State || after[1].Reason != before[1].Reason {
		t.Errorf("before %+v, after %+v", before, after)
	}
	same := func(a, b []reserve.Promise) bool {
		return len(a) == len(b) && a[0].Key == b[0].Key && len(a[0].Shares) == len(b[0].Shares)
	}
	if !same(promises, w.Book.Promises()) {
		t.Errorf("promises %+v, were %+v", w.Book.Promises(), promises)
	}
	for key, p := range rules {
		if got := w.rules.Program(key); len(got.Rules) != len(p.Rules) || len(got.Meters) != len(p.Meters) {
			t.Errorf("%s: %d rules and %d meters, were %d and %d", key, len(got.Rules), len(got.Meters), len(p.Rules), len(p.Meters))
		}
	}
}

// TestUnusableRecord checks that a stored flow that cannot be used is deleted with its promise, and
// keeps the service from nothing.
func TestUnusableRecord(t *testing.T) {
	w := newWorld(t)
	w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	all := w.Flows()
	w.stop()
	for name, text := range map[string]string{all[0].ID: "{", "abc": `{"definition": "bulk", "state": "placing"}`} {
		if err := w.store.Put(t.Context(), flowPrefix+name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	w.rules = servicetest.NewLedger()
	w.start()
	if after := w.Flows(); len(after) != 1 || after[0].ID != all[1].ID || len(w.Book.Promises()) != 1 {
		t.Errorf("restored %+v of %+v, promises %+v", after, all, w.Book.Promises())
	}
	if entries, err := w.store.List(t.Context(), flowPrefix); err != nil || len(entries) != 1 {
		t.Errorf("stored: %v, %v", entries, err)
	}
}

// A host that moves ends its flows: the next packet begins anew.
func TestHostMoves(t *testing.T) {
	w := newWorld(t)
	w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	w.net.SetHost(network.Host{MAC: mac(4, 1), IPs: []netip.Addr{addr(4, 1)}, At: hostAt(5, 1)})
	w.NetworkChanged(network.Event{Kind: network.HostMoved})
	w.eventually("the flow is over", func() bool { return len(w.Flows()) == 0 && len(w.Book.Promises()) == 0 })
	if r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1); through(r) != "135" {
		t.Errorf("to its new place: %+v", r)
	}
}

// One that is unplugged, and plugged in elsewhere, is gone and added: that ends its flows at once, too.
func TestHostIsPluggedInElsewhere(t *testing.T) {
	w := newWorld(t)
	w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	moved := network.Host{MAC: mac(4, 1), IPs: []netip.Addr{addr(4, 1)}, At: hostAt(5, 1)}
	w.net.SetHost(moved)
	w.NetworkChanged(network.Event{Kind: network.HostAdded, Host: moved})
	w.eventually("the flow is over", func() bool { return len(w.Flows()) == 0 })
}

// A flow that ends keeps its name until nothing is left of it: a packet that comes
// meanwhile does not begin it anew, to lose promise and rules to the old one's end.
func TestPacketWhileFlowEnds(t *testing.T) {
	w := newWorld(t)
	r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	removing, proceed := make(chan struct{}), make(chan struct{})
	w.rules.OnRemove = func(key string) error {
		if strings.HasPrefix(key, "flow/") {
			close(removing)
			<-proceed
		}
		return nil
	}
	var ended sync.WaitGroup
	ended.Go(func() { w.placer.end(w.flows.byID[r.ID], "test") })
	<-removing
	v := w.handlePacket(hostAt(1, 1), headers([2]int{1, 1}, [2]int{4, 1}, 1), func() (Held, error) { return fakeHeld{make(chan string, 1)}, nil })
	w.rules.OnRemove = nil
	close(proceed)
	ended.Wait()
	if v != network.Continue {
		t.Errorf("verdict %v while the flow ends", v)
	}
	if r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1); r.State != StateAccepted || w.Book.Promised(port(1, 2)) != 10*mbit {
		t.Errorf("begun anew: %+v, %d promised", r, w.Book.Promised(port(1, 2)))
	}
}

// First packets and changes of the definitions at one time.
func TestDefineUnderTraffic(t *testing.T) {
	w := newWorld(t)
	other, faults := Spec{Name: "other", Rate: mbit, Match: match.Flow{TCPDst: "9"}}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	h := headers([2]int{1, 1}, [2]int{4, 1}, 1)
	h.DstPort = 80
	var traffic sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	traffic.Go(func() {
		for ctx.Err() == nil {
			w.handlePacket(hostAt(1, 1), h, func() (Held, error) { return nil, context.Canceled })
		}
	})
	for range 1000 {
		if err := w.define(other); err != nil {
			t.Error(err)
		}
		if err := w.Definitions.Remove(t.Context(), "other", 0); err != nil {
			t.Error(err)
		}
	}
	cancel()
	traffic.Wait()
}

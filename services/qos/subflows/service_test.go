package subflows

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

var a, b = [2]int{1, 1}, [2]int{5, 1}

// placed sends a SYN, and tells by which switch its subflow goes.
func (w *world) placed(from, to [2]int, source uint16, token uint32) int {
	w.t.Helper()
	if what := w.offer(syn(from, to, source), token); what != "released" {
		w.t.Fatalf("the SYN from port %d is %s", source, what)
	}
	return w.way(source)
}

// counted is how many SYNs have met an outcome.
func (w *world) counted(outcome string) float64 {
	w.t.Helper()
	var m dto.Metric
	if err := w.metrics.joins.WithLabelValues(outcome).Write(&m); err != nil {
		w.t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// The subflows of a connection go by paths of their own, as do those of another with the
// same token and another receiver; a fourth takes one of the three.
func TestPathsOfConnections(t *testing.T) {
	w := newWorld(t)
	var ways []int
	for i := range 3 {
		ways = append(ways, w.placed(a, b, uint16(1000+i), 7))
	}
	slices.Sort(ways)
	if !slices.Equal(ways, []int{2, 3, 4}) {
		t.Errorf("three subflows go by %v", ways)
	}
	ways = nil
	for i := range 3 {
		ways = append(ways, w.placed([2]int{1, 2}, [2]int{5, 2}, uint16(2000+i), 7))
	}
	slices.Sort(ways)
	if !slices.Equal(ways, []int{2, 3, 4}) {
		t.Errorf("those of the other connection go by %v", ways)
	}
	if w.placed(a, b, 1003, 7) == 0 {
		t.Error("the fourth has no path")
	}
	if n := len(w.flows.connections); n != 2 {
		t.Errorf("%d connections", n)
	}
	if r := w.Subflows(); len(r) != 7 || r[0].Connection != "00000007@10.0.5.1" || len(r[0].Path) != 3 {
		t.Errorf("%+v", r)
	}
}

// A subflow avoids links that carry much, in either direction, and takes nothing of what is
// promised.
func TestWidestIsTaken(t *testing.T) {
	w := newWorld(t)
	w.load(1, 2, 4*mbit)
	w.load(5, 3, 6*mbit)
	if by := w.placed(a, b, 1000, 1); by != 4 {
		t.Errorf("it goes by %d", by)
	}
	w = newWorld(t)
	w.load(1, 2, 4*mbit)
	for _, at := range []network.PortRef{port(1, 3), port(1, 4)} {
		err := w.Book.Admit(reserve.Promise{Key: reserve.Key{Owner: "test", ID: at.String()}, Shares: []reserve.Share{{Link: at, Rate: 9 * mbit}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		if by := w.placed(a, b, uint16(1000+i), uint32(i)); by != 2 {
			t.Errorf("subflow %d goes by %d, where 9 of 10 Mbit/s are promised", i, by)
		}
	}
}

// What joins nothing, or nobody can place, goes like the rest, and is counted.
func TestWhatIsNotPlaced(t *testing.T) {
	w := newWorld(t)
	held := func() (Held, error) { t.Error("it is held"); return nil, network.ErrBusy }
	stranger := syn(a, b, 1)
	stranger.EthDst[5] = 99
	unheard := syn(a, b, 1)
	unheard.EthSrc[5] = 99
	group := syn(a, b, 1)
	group.EthDst[0] = 1
	for _, c := range []struct {
		why string
		at  network.PortRef
		h   *packet.Headers
		m   packet.MPTCP
	}{
		{outcomePlain, hostAt(1, 1), syn(a, b, 1), packet.MPTCP{Capable: true, Version: 1}},
		{outcomeInside, port(5, 2), syn(a, b, 1), packet.MPTCP{Join: true}},
		{outcomeUnknown, hostAt(1, 1), stranger, packet.MPTCP{Join: true}},
		{outcomeUnknown, hostAt(1, 1), unheard, packet.MPTCP{Join: true}},
		{outcomeForged, hostAt(1, 2), syn(a, b, 1), packet.MPTCP{Join: true}},
	} {
		before := w.counted(c.why)
		if w.handleSYN(c.at, c.h, c.m, held) != network.Continue {
			t.Errorf("%s: it is taken", c.why)
		}
		if n := w.counted(c.why); n != before+1 {
			t.Errorf("%s is counted %v times, and was %v times", c.why, n, before)
		}
	}
	if w.handleSYN(hostAt(1, 1), group, packet.MPTCP{Join: true}, held) != network.Continue {
		t.Error("a SYN to a group is taken")
	}
	w.cut(1, 2)
	w.cut(1, 3)
	w.cut(1, 4)
	if what := w.offer(syn(a, b, 2), 1); what != "unmarked" {
		t.Errorf("without a path a SYN is %s", what)
	}
	if len(w.Subflows()) != 0 || len(w.flows.placing) != 0 || w.flows.placingAll != 0 {
		t.Errorf("left: %+v", w.flows)
	}
}

// No path is sought again for what could not be placed, until as much time has passed as
// something silent stays; a host may have no more of that than of what is placed.
func TestFailuresAreRemembered(t *testing.T) {
	w := newWorld(t)
	for _, x := range []int{2, 3, 4} {
		w.cut(1, x)
	}
	outcomes := map[string]int{}
	for i := range 1000 {
		outcomes[w.offer(syn(a, b, uint16(i%500+1)), uint32(i))]++
	}
	if outcomes["unmarked"] != 20 || outcomes["left"] != 980 || w.counted(outcomeFailed) != 20 {
		t.Errorf("of 1000 %v, where 20 may be sought a path for", outcomes)
	}
	if what := w.offer(syn([2]int{1, 2}, b, 1), 1); what != "unmarked" {
		t.Errorf("another host's is %s", what)
	}
	w.flows.forget(time.Now())
	if len(w.flows.byID) != 0 || len(w.flows.byHeader) != 0 || len(w.flows.connections) != 0 || len(w.flows.from) != 0 {
		t.Errorf("left: %+v", w.flows)
	}
}

// Not all that are being placed are of one port.
func TestMostBeingPlacedOfOnePort(t *testing.T) {
	flows := newTable(maxSubflows)
	from := func(n int, source uint16) *subflow {
		h, _ := match.HeaderOf(syn([2]int{1, n}, b, source))
		return &subflow{id: identify(h), stored: stored{Header: h, From: hostAt(1, n)}}
	}
	var of1 []*subflow
	for flows.refusal(hostAt(1, 1)) == "" {
		of1 = append(of1, from(1, uint16(len(of1)+1)))
		flows.addPlacing(of1[len(of1)-1])
	}
	if len(of1) != maxPlacingEach || flows.refusal(hostAt(1, 1)) != outcomeBusy || flows.refusal(hostAt(1, 2)) != "" {
		t.Errorf("%d of one port; another's: %q", len(of1), flows.refusal(hostAt(1, 2)))
	}
	for _, f := range of1 {
		flows.donePlacing(f)
	}
	if why := flows.refusal(hostAt(1, 1)); why != "" || len(flows.placing) != 0 || flows.placingAll != 0 {
		t.Errorf("afterwards %q, %+v", why, flows.placing)
	}
}

// A host that opens more than it may, with tokens of no connection, has those only that it may
// have, and another host has its own.
func TestMostOfOnePort(t *testing.T) {
	w := newWorld(t)
	left := 0
	for i := range 1000 {
		if w.offer(syn(a, b, uint16(i+1)), uint32(i)) == "left" {
			left++
		}
	}
	if left != 980 || w.counted(outcomeMost) != 980 {
		t.Errorf("%d of 1000 are left, where 20 may be placed", left)
	}
	if w.placed([2]int{1, 2}, b, 1, 1) == 0 {
		t.Error("another host's is not placed")
	}
}

// When a link of its path dies a subflow goes by another; without one it is over. When it has
// been silent, nothing is left of it.
func TestLinkDies(t *testing.T) {
	w := newWorld(t)
	by := w.placed(a, b, 1000, 1)
	w.cut(1, by)
	w.review(t.Context())
	now := w.way(1000)
	if now == 0 || now == by || w.Subflows()[0].Moves != 1 {
		t.Fatalf("by %d, then by %d: %+v", by, now, w.Subflows())
	}
	for _, r := range w.rules.Program("subflow/" + w.Subflows()[0].ID).Rules {
		if int(r.Switch) == by {
			t.Errorf("a rule is left at switch %d", by)
		}
	}
	for _, x := range []int{2, 3, 4} {
		w.cut(1, x)
	}
	w.review(t.Context())
	if n := len(w.Subflows()); n != 0 {
		t.Errorf("%d subflows without a path", n)
	}
	if len(w.placer.chooser.loads.placed) != 0 {
		t.Errorf("links with subflows: %v", w.placer.chooser.loads.placed)
	}
}

// When a switch of its path leaves, a subflow goes by another at once. One that has no other stays for
// a while: the switch may have lost its connection to the controller alone.
func TestSwitchLeaves(t *testing.T) {
	w := newWorld(t)
	by := w.placed(a, b, 1000, 1)
	w.leave(by)
	w.review(t.Context())
	now := w.way(1000)
	if now == 0 || now == by {
		t.Fatalf("by %d, then by %d", by, now)
	}
	w.leave(2, 3, 4)
	w.review(t.Context())
	if w.way(1000) != now {
		t.Errorf("by %d, then by %d, with no other way", now, w.way(1000))
	}
	w.join()
	w.review(t.Context())
	if s := w.Subflows(); w.way(1000) != now || len(s) != 1 || s[0].Moves != 1 {
		t.Errorf("by %d, then by %d: %+v", now, w.way(1000), s)
	}
}

// A switch by which a subflow enters may lose its connection to the controller alone, and go on to
// send along the path: the rules of the others stay, though there is no other way. In the end they go.
func TestEntryAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		by := w.placed(a, b, 1000, 1)
		key := "subflow/" + w.Subflows()[0].ID
		before := w.rules.Program(key)
		w.leave(1)
		for range 2 {
			w.review(t.Context())
			pause.For(time.Minute, "the switch, which does not come back")
		}
		if w.way(1000) != by || len(w.rules.Program(key).Rules) != len(before.Rules) {
			t.Errorf("it went by %d by %d rules, and goes by %d by %+v", by, len(before.Rules), w.way(1000), w.rules.Program(key))
		}
		pause.For(maxDisconnected, "the switch, which does not come back")
		w.review(t.Context())
		if len(w.Subflows()) != 0 || len(w.rules.Program(key).Rules) != 0 {
			t.Errorf("left: %+v, %+v", w.Subflows(), w.rules.Program(key))
		}
	})
}

// A host that is unplugged, and plugged in elsewhere, is gone and added: that ends its subflows at once,
// for their answers would go to where it was. Other hosts have nothing looked at.
func TestHostIsPluggedInElsewhere(t *testing.T) {
	w := newWorld(t)
	w.placed(a, b, 1000, 1)
	if w.flows.between(mac(5, 2)) || !w.flows.between(mac(5, 1)) {
		t.Error("hosts with subflows are not told from others")
	}
	moved := network.Host{MAC: mac(5, 1), IPs: []netip.Addr{addr(5, 1)}, At: hostAt(5, 7)}
	w.net.SetHost(moved)
	w.NetworkChanged(network.Event{Kind: network.HostAdded, Host: moved})
	w.many(0)
	if len(w.flows.ends) != 0 {
		t.Errorf("hosts with subflows: %v", w.flows.ends)
	}
}

// A subflow on a link that has filled is moved to a path that gives it half as much again, not
// to one that does not.
func TestLinkFills(t *testing.T) {
	w := newWorld(t)
	by := w.placed(a, b, 1000, 1)
	f := w.flows.all()[0]
	clear(w.placer.chooser.loads.expected)
	read := func(rate uint64) {
		f.mu.Lock()
		f.counters[reverse].Rate = rate
		f.mu.Unlock()
		w.relieve(t.Context())
	}
	w.load(1, by, 10*mbit)
	read(9 * mbit)
	read(9 * mbit)
	if now := w.way(1000); now != by {
		t.Fatalf("it carries 9 of 10 Mbit/s, and goes by %d now", now)
	}
	read(2 * mbit)
	read(2 * mbit)
	now := w.way(1000)
	if now == by {
		t.Fatal("it stays where it has 2 of 10 Mbit/s")
	}
	w.load(1, now, 10*mbit)
	read(2 * mbit)
	read(2 * mbit)
	if w.way(1000) != now {
		t.Error("it does not stay long enough to be measured")
	}
}

// A restart leaves subflows where they are, and one that has them no longer placed ends them.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.placed(a, b, 1000, 1)
	before := w.Subflows()
	w.stop()
	w.rules.Restart()
	w.start()
	after := w.Subflows()
	if len(after) != 1 || after[0].ID != before[0].ID || !slices.Equal(after[0].Path, before[0].Path) || w.placer.chooser.loads.placed[port(1, w.way(1000))] != 1 {
		t.Fatalf("before %+v, after %+v", before, after)
	}
	if _, declared := w.rules.AtReady()["subflow/"+before[0].ID]; !declared {
		t.Error("its rules are not declared again before the others are removed")
	}
	w.cut(1, 2) // as when links have not been found again yet
	w.cut(1, 3)
	w.cut(1, 4)
	w.stop()
	w.rules.Restart()
	w.start()
	w.review(t.Context())
	if len(w.Subflows()) != 1 {
		t.Error("it is over since no link has been found yet")
	}
	w.stop()
	w.rules.Restart()
	w.on = false
	w.start()
	if len(w.Subflows()) != 0 || len(w.rules.Programs()) != 0 {
		t.Errorf("left: %+v, %v", w.Subflows(), w.rules.Keys())
	}
	if entries, err := w.store.List(t.Context(), storePrefix); err != nil || len(entries) != 0 {
		t.Errorf("stored: %v, %v", entries, err)
	}
}

// TestUnusableRecord checks that a stored subflow that cannot be used is deleted with its rules, and
// keeps the service from nothing.
func TestUnusableRecord(t *testing.T) {
	w := newWorld(t)
	w.placed(a, b, 1000, 1)
	w.placed(a, b, 2000, 1)
	all := w.Subflows()
	w.stop()
	for name, text := range map[string]string{all[0].ID: "{", "abc": `{"hops": []}`} {
		if err := w.store.Put(t.Context(), storePrefix+name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	w.rules.Restart()
	w.start()
	if after := w.Subflows(); len(after) != 1 || after[0].ID != all[1].ID {
		t.Errorf("restored %+v of %+v", after, all)
	}
	if _, declared := w.rules.AtReady()["subflow/"+all[0].ID]; declared {
		t.Error("rules of a subflow that nobody knows stay")
	}
	if entries, err := w.store.List(t.Context(), storePrefix); err != nil || len(entries) != 1 {
		t.Errorf("stored: %v, %v", entries, err)
	}
}

// The rule of a subflow that was silent is removed by its switch, and with it all the rest.
func TestSilent(t *testing.T) {
	w := newWorld(t)
	w.placed(a, b, 1000, 1)
	w.Removed(network.Removed{Installed: network.InstalledRule{Name: "subflow/" + w.Subflows()[0].ID}})
	deadline := time.After(30 * time.Second)
	for len(w.Subflows()) > 0 || len(w.rules.Keys()) > 1 {
		select {
		case <-deadline:
			t.Fatalf("left: %+v, %v", w.Subflows(), w.rules.Keys())
		case <-time.After(time.Millisecond):
		}
	}
}

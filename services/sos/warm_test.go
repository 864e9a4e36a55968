package sos

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// configure changes the service's configuration.
func (b *bench) configure(ch ConfigChange) {
	b.t.Helper()
	if _, err := b.service.selection.setConfig(b.t.Context(), ch); err != nil {
		b.t.Fatal(err)
	}
}

// whitelistOnly replaces the whitelist by one entry.
func (b *bench) whitelistOnly(s EntrySpec) {
	b.t.Helper()
	e := mustEntry(b.t, s)
	e.ID = "only"
	for _, old := range b.service.selection.entries.Values() {
		if err := b.service.selection.entries.Remove(b.t.Context(), old.ID, 0); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.service.selection.entries.Add(b.t.Context(), e.ID, e); err != nil {
		b.t.Fatal(err)
	}
}

// warmTo waits until an agent opens connections to exactly the given peers.
func (b *bench) warmTo(what string, a *fakeAgent, peers ...netip.Addr) {
	b.t.Helper()
	b.eventually(what, func() bool {
		_, warm := a.lists()
		return slices.EqualFunc(warm, peers, func(p agentapi.WarmPeer, addr netip.Addr) bool { return p.Peer.Addr == addr })
	})
}

// TestWarmBeforeFirst checks that the agents of a likely pair are told to open connections, with the
// same key and the parameters of the entry, and their rules are written; and that both end when the
// pair is no longer likely.
func TestWarmBeforeFirst(t *testing.T) {
	b := newBench(t)
	s := spec(hostA.Addr().String(), hostB.Addr().String(), "80")
	s.Tuning.Paths = 2
	b.whitelistOnly(s)
	b.configure(ConfigChange{WarmPeers: new(4)})
	b.warmTo("X opens connections to Y", b.x, agentY.Addr())
	_, warm := b.x.lists()
	expected, none := b.y.lists()
	if len(expected) != 1 || len(none) != 0 {
		t.Fatalf("Y expects %+v and opens %+v", expected, none)
	}
	if x, y := warm[0], expected[0]; x.ID != y.ID || x.Key != y.Key || y.Peer.Addr != agentX.Addr() || len(x.Peer.DataPorts) != 2 || x.Params.Paths != 2 || y.Params != x.Params {
		t.Errorf("X is told %+v, Y %+v", x, y)
	}
	b.eventually("the pair has rules", func() bool { return slices.Contains(b.net.kept(), pairKey(agentX.Addr(), agentY.Addr())) })
	b.eventually("the API shows the pair", func() bool {
		all := b.service.warming.infos()
		return len(all) == 1 && all[0].ClientAgent == "x" && all[0].ServerAgent == "y" && all[0].Connections == 2 && all[0].Error == ""
	})

	old := warm[0].ID
	b.y.kill()
	b.warmTo("without Y, X closes the connections", b.x)
	b.clean()
	if len(b.service.warming.infos()) != 0 {
		t.Error("the API still shows the pair")
	}
	b.y = newFakeAgent(t, b.net, "y")
	if err := b.service.agents.Remove(t.Context(), "y", true); err != nil {
		t.Fatal(err)
	}
	b.add("y", b.y, agentY.Addr())
	b.warmTo("with Y, X opens connections again", b.x, agentY.Addr())
	if _, warm := b.x.lists(); warm[0].ID == old {
		t.Error("a restarted agent gets the key of before")
	}
	for _, c := range []struct {
		name    string
		off, on func()
	}{
		{"WarmPeers is 0", func() { b.configure(ConfigChange{WarmPeers: new(0)}) }, func() { b.configure(ConfigChange{WarmPeers: new(1)}) }},
		{"SOS is disabled", func() { b.configure(ConfigChange{Enabled: new(false)}) }, func() { b.configure(ConfigChange{Enabled: new(true)}) }},
		{"no entry allows it", func() {
			if err := b.service.selection.entries.Remove(t.Context(), "only", 0); err != nil {
				t.Fatal(err)
			}
		}, func() { b.whitelistOnly(s) }},
		{"the server is near X", func() {
			b.net.SetHost(network.Host{MAC: macB, At: at(1, portB), IPs: []netip.Addr{hostB.Addr()}})
			b.service.NetworkChanged(network.Event{Kind: network.HostMoved})
		}, func() {
			b.net.SetHost(network.Host{MAC: macB, At: at(2, portB), IPs: []netip.Addr{hostB.Addr()}})
			b.service.NetworkChanged(network.Event{Kind: network.HostMoved})
		}},
	} {
		c.off()
		b.warmTo(c.name+": X opens none", b.x)
		b.eventually(c.name+": Y expects none", func() bool { expected, _ := b.y.lists(); return len(expected) == 0 })
		b.clean()
		c.on()
		b.warmTo("no longer "+c.name, b.x, agentY.Addr())
	}
}

// TestWarmBothWays checks that two agents open connections to each other if each of them has clients
// and servers.
func TestWarmBothWays(t *testing.T) {
	b := newBench(t)
	b.configure(ConfigChange{WarmPeers: new(4)})
	b.warmTo("X opens connections to Y", b.x, agentY.Addr())
	b.warmTo("Y opens connections to X", b.y, agentX.Addr())
	b.configure(ConfigChange{WarmPeers: new(1)})
	b.warmTo("X is left with one pair", b.x, agentY.Addr())
	b.warmTo("Y opens none", b.y)
}

// TestWarmUnknownHosts checks that as long as no client and no server is known, either agent may be
// near each of them.
func TestWarmUnknownHosts(t *testing.T) {
	b := newBench(t)
	for _, addr := range []netip.Addr{hostA.Addr(), hostB.Addr(), netip.MustParseAddr("10.0.0.13")} {
		b.net.RemoveHost(addr)
	}
	b.whitelistOnly(spec("0.0.0.0/0", hostB.Addr().String(), "80"))
	b.configure(ConfigChange{WarmPeers: new(4)})
	b.warmTo("X opens connections to Y", b.x, agentY.Addr())
	b.warmTo("Y opens connections to X", b.y, agentX.Addr())
	b.net.SetHost(network.Host{MAC: macB, At: at(2, portB), IPs: []netip.Addr{hostB.Addr()}})
	b.service.NetworkChanged(network.Event{Kind: network.HostAdded})
	b.warmTo("with a known server, Y opens none", b.y)
	b.warmTo("X still does", b.x, agentY.Addr())
}

// TestWarmFails checks that the API tells why a pair has no connections, and that agents that do not
// know such requests carry sessions all the same.
func TestWarmFails(t *testing.T) {
	b := newBench(t)
	b.whitelistOnly(spec(hostA.Addr().String(), hostB.Addr().String(), "80"))
	b.x.mu.Lock()
	b.x.warmResult = func(agentapi.WarmPeer) agentapi.WarmStatus {
		return agentapi.WarmStatus{Error: strings.Repeat("no route to host ", 100)}
	}
	b.x.mu.Unlock()
	b.configure(ConfigChange{WarmPeers: new(4)})
	b.eventually("the API tells why", func() bool {
		all := b.service.warming.infos()
		return len(all) == 1 && all[0].Connections == 0 && strings.HasPrefix(all[0].Error, "no route to host") && len(all[0].Error) <= maxWarmError
	})
	b.live()
}

// TestWarmUsed checks that two agents that have carried a session stay a likely pair although the
// server is behind a router, so that its place is not known.
func TestWarmUsed(t *testing.T) {
	b := newBench(t)
	b.whitelistOnly(spec("10.0.0.0/24", hostB.Addr().String(), "80"))
	id := b.live()
	b.x.finish(id, agentapi.ReasonClosed)
	b.y.finish(id, agentapi.ReasonClosed)
	b.clean()
	b.net.RemoveHost(hostB.Addr())
	b.configure(ConfigChange{WarmPeers: new(4)})
	b.warmTo("X opens connections to Y", b.x, agentY.Addr())
	b.service.mu.Lock()
	used := b.service.warming.used(time.Now().Add(2 * usedFor))
	b.service.mu.Unlock()
	if len(used) != 0 {
		t.Errorf("pairs that were used long ago count: %v", used)
	}
}

// TestWarmIsBounded checks that no agent belongs to more pairs than configured, and that pairs with
// sessions lately come first.
func TestWarmIsBounded(t *testing.T) {
	var all []*agent
	for _, name := range []string{"a", "b", "c", "d"} {
		a := &agent{}
		a.Name = name
		all = append(all, a)
	}
	now := time.Now()
	pair := func(i, j int, used time.Time) *warmPair {
		return &warmPair{pairEnds: pairEnds{client: all[i], server: all[j]}, used: used}
	}
	guessed := pair(0, 1, time.Time{})
	guessed.guessed = true
	pairs := []*warmPair{guessed, pair(0, 2, time.Time{}), pair(0, 3, now), pair(1, 2, now.Add(-time.Minute)), pair(1, 3, time.Time{})}
	for most, want := range map[int]string{0: "", 1: "ad bc", 2: "ad bc ac bd", 3: "ad bc ac bd ab"} {
		var got []string
		for _, p := range bounded(slices.Clone(pairs), most) {
			got = append(got, p.client.Name+p.server.Name)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("at most %d: %q, want %q", most, s, want)
		}
	}
}

// TestWarmOutgrown checks when connections are opened again because their path carries more than was
// known.
func TestWarmOutgrown(t *testing.T) {
	path := func(rate uint64) []agentapi.Path {
		if rate == 0 {
			return nil
		}
		return []agentapi.Path{{Rate: rate, RTT: control.Duration(100 * time.Millisecond)}}
	}
	for _, c := range []struct {
		name     string
		before   uint64
		up, down uint64
		want     bool
	}{
		{"nothing is known", 0, 0, 0, false},
		{"little becomes known", 0, 5e6, 5e6, false},
		{"much becomes known", 0, 1e8, 1e8, true},
		{"in one direction", 0, 0, 1e8, true},
		{"the same", 1e8, 1e8, 1e8, false},
		{"a little more", 1e8, 14e7, 14e7, false},
		{"twice as much", 1e8, 1e8, 2e8, true},
		{"half as much", 1e8, 5e7, 5e7, false},
	} {
		holds := pathHolds(path(c.before))
		x := &warmState{opened: [2]float64{holds, holds}}
		if got := x.outgrown(&warmPair{paths: [2][]agentapi.Path{path(c.up), path(c.down)}}); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

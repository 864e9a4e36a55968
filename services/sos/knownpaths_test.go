package sos

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// TestKnownPath checks that agents are told the rate that the slowest link leaves free, or their
// share of it if that is more, if the operator has declared its capacity.
func TestKnownPath(t *testing.T) {
	at := func(dpid, port int) network.PortRef {
		return network.PortRef{Switch: openflow.DatapathID(dpid), Port: uint32(port)}
	}
	hops := []network.Hop{{Switch: 1, In: 1, Out: 2}, {Switch: 2, In: 1, Out: 2}, {Switch: 3, In: 1, Out: 2}}
	const ms = time.Millisecond
	link := func(a, b network.PortRef, capacity, used uint64, declared bool) []topology.Link {
		there := topology.Link{From: a, To: b, Latency: 10 * ms, Capacity: capacity, Used: used, Declared: declared}
		back := there
		back.From, back.To, back.Used = b, a, 0
		return []topology.Link{there, back}
	}
	for _, c := range []struct {
		name          string
		first, second []topology.Link
		hops          []network.Hop
		rate          uint64
		rtt           time.Duration
		sharers       map[network.PortRef]int
	}{
		{"the slowest is declared", link(at(1, 2), at(2, 1), 10e9, 0, false), link(at(2, 2), at(3, 1), 3e8, 1e8, true), hops, 2e8, 40 * ms, nil},
		{"both are", link(at(1, 2), at(2, 1), 4e8, 39e7, true), link(at(2, 2), at(3, 1), 3e8, 0, true), hops, 1e7, 40 * ms, nil},
		{"one is full", link(at(1, 2), at(2, 1), 3e8, 3e8, true), link(at(2, 2), at(3, 1), 1e9, 0, true), hops, 0, 40 * ms, nil},
		{"one link's rate is unknown", link(at(1, 2), at(2, 1), 0, 0, false), link(at(2, 2), at(3, 1), 3e8, 0, true), hops, 0, 0, nil},
		{"the slowest is not", link(at(1, 2), at(2, 1), 1e8, 0, false), link(at(2, 2), at(3, 1), 3e8, 0, true), hops, 0, 0, nil},
		{"nothing is", link(at(1, 2), at(2, 1), 1e9, 0, false), link(at(2, 2), at(3, 1), 1e9, 0, false), hops, 0, 0, nil},
		{"one link's latency is unknown", []topology.Link{{From: at(1, 2), To: at(2, 1)}, {From: at(2, 1), To: at(1, 2)}}, link(at(2, 2), at(3, 1), 3e8, 0, true), hops, 0, 0, nil},
		{"a link has no reverse direction", link(at(1, 2), at(2, 1), 1e9, 0, true)[:1], link(at(2, 2), at(3, 1), 3e8, 0, true), hops, 0, 0, nil},
		{"one switch", nil, nil, hops[:1], 0, 0, nil},
		{"this pair fills it itself", link(at(1, 2), at(2, 1), 1e9, 0, true), link(at(2, 2), at(3, 1), 3e8, 3e8, true), hops, 3e8, 40 * ms, map[network.PortRef]int{at(1, 2): 1, at(2, 2): 1}},
		{"another pair fills it", link(at(1, 2), at(2, 1), 1e9, 0, true), link(at(2, 2), at(3, 1), 3e8, 3e8, true), hops, 15e7, 40 * ms, map[network.PortRef]int{at(2, 2): 2}},
		{"two others use little of it", link(at(1, 2), at(2, 1), 1e9, 0, true), link(at(2, 2), at(3, 1), 3e8, 1e7, true), hops, 29e7, 40 * ms, map[network.PortRef]int{at(2, 2): 3}},
		{"others share the first", link(at(1, 2), at(2, 1), 6e8, 6e8, true), link(at(2, 2), at(3, 1), 3e8, 0, true), hops, 2e8, 40 * ms, map[network.PortRef]int{at(1, 2): 3}},
	} {
		top := topology.New(1, []openflow.DatapathID{1, 2, 3}, append(c.first, c.second...))
		got := estimatePath(top, c.hops, c.sharers)
		if got.Rate != c.rate || time.Duration(got.RTT) != c.rtt {
			t.Errorf("%s: %d bits a second, %v, want %d, %v", c.name, got.Rate, got.RTT, c.rate, c.rtt)
		}
	}
}

// TestSharers checks that a pair is counted on its links, in both directions, while it has sessions
// and for some time afterwards.
func TestSharers(t *testing.T) {
	b := newBench(t)
	id := b.live()
	own, other := pairKey(agentX.Addr(), agentY.Addr()), pairKey(agentX.Addr(), hostB.Addr())
	count := func(key string, want int) {
		t.Helper()
		got := b.service.pairs.sharers(key, time.Now())
		if got[at(1, wan)] != want || got[at(2, wan)] != want {
			t.Errorf("for %s: %v, want %d", key, got, want)
		}
	}
	count(own, 1)
	count(other, 2)
	b.x.finish(id, "closed")
	b.y.finish(id, "closed")
	b.clean()
	count(other, 2)
	b.service.mu.Lock()
	b.service.pairs.all[own].released = time.Now().Add(-2 * loadAge)
	b.service.mu.Unlock()
	count(other, 0)
	count(own, 0)
}

package forward

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// randomNet draws any network, including ones with loops, parallel links and separate parts.
func randomNet(t *rapid.T) *net {
	n := &net{edges: map[openflow.DatapathID][]uint32{}, ips: map[netip.Addr]hosts.Neighbor{}, hosts: map[openflow.MAC]topology.PortRef{}}
	switches := rapid.IntRange(1, 6).Draw(t, "switches")
	for s := 1; s <= switches; s++ {
		n.edges[openflow.DatapathID(s)] = []uint32{100, 101}
	}
	next := map[int]int{}
	for range rapid.IntRange(0, 10).Draw(t, "cables") {
		a, b := rapid.IntRange(1, switches).Draw(t, "a"), rapid.IntRange(1, switches).Draw(t, "b")
		next[a]++
		from := ref(a, next[a])
		next[b]++
		n.cable(from, ref(b, next[b]))
	}
	return n
}

// deliver sends a flooded packet through the rules of each switch, and counts how often it
// leaves each edge port. It fails on a loop.
func deliver(t *rapid.T, n *net, out PacketOut, rules func(openflow.DatapathID) []rule.Rule) map[topology.PortRef]int {
	cables := map[topology.PortRef]topology.PortRef{}
	for _, l := range n.links {
		cables[l.From] = l.To
	}
	came := map[topology.PortRef]int{}
	type copied struct {
		s       openflow.DatapathID
		actions []openflow.Action
	}
	queue := []copied{{out.Switch, out.Actions}}
	for steps := 0; len(queue) > 0; steps++ {
		if steps > 1000 {
			t.Fatal("the packet goes round and round")
		}
		c := queue[0]
		queue = queue[1:]
		for _, a := range c.actions {
			port := topology.PortRef{Switch: c.s, Port: a.Arg}
			in, ok := cables[port]
			if !ok {
				came[port]++
				continue
			}
			for _, r := range rules(in.Switch) {
				_, group := r.Match.Get(openflow.FieldEthDst)
				if p, _ := r.Match.Get(openflow.FieldInPort); group && uint32(p.Uint()) == in.Port {
					queue = append(queue, copied{in.Switch, r.Actions})
				}
			}
		}
	}
	return came
}

func of(p rule.Program) func(openflow.DatapathID) []rule.Rule {
	return func(s openflow.DatapathID) []rule.Rule {
		return slices.DeleteFunc(slices.Clone(p.Rules), func(r rule.Rule) bool { return r.Switch != s })
	}
}

func broadcast() *packet.Headers {
	h := unicast(1, 2)
	h.EthDst = openflow.Broadcast
	return h
}

func TestBroadcastReachesEveryEdgePortOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := randomNet(t)
		v := n.view()
		from := ref(rapid.IntRange(1, len(n.edges)).Draw(t, "from"), 100)
		d := NewTable().Decide(v, from, broadcast())
		if d.Verb != Flood {
			t.Fatalf("%v: %s", d.Verb, d.Why)
		}
		came := deliver(t, n, d.Out, of(v.BaseProgram()))
		for s, ports := range n.edges {
			_, reachable := v.Topology.Path(from, topology.PortRef{Switch: s, Port: 100}, topology.MetricHops)
			for _, p := range ports {
				at := topology.PortRef{Switch: s, Port: p}
				want := 0
				if reachable && at != from {
					want = 1
				}
				if came[at] != want {
					t.Fatalf("came %d times to %v, want %d", came[at], at, want)
				}
			}
		}
	})
}

// TestLearningRules checks the rules at edge ports that reveal hosts' addresses, and that a
// switch which cannot match ICMPv6 types gets no rule for IPv6.
func TestLearningRules(t *testing.T) {
	n := ring()
	v := n.view()
	v.CanMatch = func(s openflow.DatapathID, _ openflow.Field) bool { return s != 2 }
	got := map[topology.PortRef]int{}
	for _, r := range v.BaseProgram().Rules {
		if r.Offset != rule.RouteLearn {
			continue
		}
		in, _ := r.Match.Get(openflow.FieldInPort)
		got[topology.PortRef{Switch: r.Switch, Port: uint32(in.Uint())}]++
	}
	want := map[topology.PortRef]int{ref(1, 9): 2, ref(2, 9): 1, ref(3, 9): 2, ref(4, 9): 2}
	if !maps.Equal(got, want) {
		t.Errorf("rules by port %v, want %v", got, want)
	}
}

// TestChangeOfTreeNeverLoops checks that no packet loops and none is duplicated while the
// switches change from one tree to another, in any order.
func TestChangeOfTreeNeverLoops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := randomNet(t)
		before := n.view().BaseProgram()
		all := slices.Clone(n.links)
		for range rapid.IntRange(0, 2).Draw(t, "lost") {
			if len(n.links) > 0 {
				n.cut(rapid.SampledFrom(n.links).Draw(t, "link").From)
			}
		}
		after := n.view().BaseProgram()
		if rapid.Bool().Draw(t, "reverse") { // links are added instead
			before, after = after, before
		}
		n.links = all // a link that is considered down may still carry packets
		shrunk := Shrink(before, after)
		for _, phase := range [][2]rule.Program{{before, shrunk}, {shrunk, after}} {
			done := map[openflow.DatapathID]bool{}
			for s := range n.edges {
				done[s] = rapid.Bool().Draw(t, "done")
			}
			rules := func(s openflow.DatapathID) []rule.Rule {
				if done[s] {
					return of(phase[1])(s)
				}
				return of(phase[0])(s)
			}
			for s := range n.edges {
				for _, r := range rules(s) {
					if _, group := r.Match.Get(openflow.FieldEthDst); !group {
						continue
					}
					for at, times := range deliver(t, n, PacketOut{Switch: s, Actions: r.Actions}, rules) {
						if times > 1 {
							t.Fatalf("came %d times to %v", times, at)
						}
					}
				}
			}
		}
	})
}

package classes

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
)

// A class of a host that moves is where that host's own rules lead, both ways, and is placed
// anew when the host has another way. Where its other end stands is of no account.
func TestClassOfAHostThatMoves(t *testing.T) {
	s, f, e := placed(t)
	down := []topology.Hop{{Switch: 2, In: 9, Out: 1}, {Switch: 1, In: 2, Out: 7}}
	f.anchors = map[netip.Addr]network.Anchor{end(3).IP: {Path: down}}
	f.RemoveHost(end(1).IP)
	if s.plan.intact(e) {
		t.Error("it is where its host does not go")
	}
	e.class.Flows = append(e.class.Flows, Flow{Src: end(3), Dst: end(1)})
	all, err := s.plan.locateAll(t.Context(), &e.class)
	if err != nil {
		t.Fatal(err)
	}
	var routes []Route
	up := []topology.Hop{{Switch: 1, In: 7, Out: 2}, {Switch: 2, In: 1, Out: 9}}
	for i, want := range [][]topology.Hop{down, up} {
		r, _, err := findRoute(s.Network.Topology(), &e.class, i, all[i], func(topology.Link) string { return "" })
		if err != nil || !slices.Equal(r.Hops, want) {
			t.Errorf("flow %d goes %+v, want %v: %v", i, r, want, err)
		}
		routes = append(routes, r)
	}
	e.routes = routes
	if !s.plan.intact(e) {
		t.Error("it is where its host goes")
	}
	f.anchors[end(3).IP] = network.Anchor{Path: down[:1]}
	if s.plan.intact(e) {
		t.Error("its host has another way")
	}
}

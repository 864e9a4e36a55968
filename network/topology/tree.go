package topology

import (
	"slices"
	"sync"

	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/openflow"
)

// tree is the spanning forest for broadcasts. It is computed on first use.
type tree struct {
	once  sync.Once
	ports map[openflow.DatapathID][]uint32
	on    map[PortRef]struct{}
}

// TreePorts returns the ports of a switch by which broadcasts go to other switches, ascending.
// Together they form a spanning tree of each connected part of the network. Links that were seen
// in only one direction take no part. Fast links are preferred. Among equal links the choice
// depends on their ports alone, so that a change elsewhere does not change the tree.
func (t *Topology) TreePorts(s openflow.DatapathID) []uint32 {
	t.tree.once.Do(t.buildTree)
	return t.tree.ports[s]
}

// OnTree reports whether a port is one of its switch's TreePorts.
func (t *Topology) OnTree(r PortRef) bool {
	t.tree.once.Do(t.buildTree)
	_, ok := t.tree.on[r]
	return ok
}

func (t *Topology) buildTree() {
	t.tree.ports = make(map[openflow.DatapathID][]uint32, len(t.Switches))
	t.tree.on = make(map[PortRef]struct{}, 2*len(t.Switches))
	var edges []graph.Edge
	var links []Link
	for _, l := range t.Links {
		back, ok := t.LinkFrom(l.To)
		if !ok || back.To != l.From || l.From.Compare(l.To) > 0 {
			continue
		}
		w := max(cost(l, MetricCapacity), cost(back, MetricCapacity))
		edges = append(edges, graph.Edge{A: t.index[l.From.Switch], B: t.index[l.To.Switch], Weight: w})
		links = append(links, l)
	}
	for _, i := range graph.SpanningForest(len(t.Switches), edges) {
		for _, end := range []PortRef{links[i].From, links[i].To} {
			t.tree.on[end] = struct{}{}
			t.tree.ports[end.Switch] = append(t.tree.ports[end.Switch], end.Port)
		}
	}
	for _, p := range t.tree.ports {
		slices.Sort(p)
	}
}

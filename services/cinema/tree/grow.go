package tree

import (
	"math"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/openflow"
)

// Want describes the tree that a channel needs.
type Want struct {
	// Root is the port by which the channel enters the network.
	Root network.PortRef
	// Rate is the bit rate that the channel may send, in bit/s.
	Rate uint64
	// Switches are the switches behind which the channel is watched.
	Switches []openflow.DatapathID
	// Unverified reports whether a link that the topology does not have may be up all the same,
	// like those of a switch that has just reconnected. If it is nil, no link may.
	Unverified func(Edge) bool
}

// Room returns the bit rate that a channel may still reserve of the link that leaves by a port (left),
// and that all channels together may reserve of it (all), in bit/s. If all is zero, the link's
// capacity is not known and there is always room.
type Room func(from network.PortRef) (left, all uint64)

func (r Room) has(e Edge, rate uint64) bool {
	left, all := r(e.From)
	return all == 0 || left >= rate
}

// Grow returns a tree that reaches the wanted switches, and why it does not reach the others. Links of
// the old tree that are still up and have room stay. Grow reaches missing switches over the fewest
// additional links, the nearest switch first, so that the result depends on the network alone. A
// switch for which no path has room is refused, with the reason, and does not affect the others. A
// switch that is disconnected from the controller, or was until recently, keeps its old path if there
// is no other.
func Grow(top *network.Topology, old Tree, w Want, room Room) (Tree, map[openflow.DatapathID]error) {
	g := &grower{top: top, old: old, want: w, room: room, uplink: map[openflow.DatapathID]Edge{}}
	kept := connected(w.Root, old.Edges, func(e Edge) bool { return e.InTopology(top) && room.has(e, w.Rate) })
	for _, e := range kept.Edges {
		g.uplink[e.To.Switch] = e
	}
	refused := g.connectMissing()
	g.keepUnverified(refused)
	return g.prune(), refused
}

// InTopology reports whether a topology has the link.
func (e Edge) InTopology(top *network.Topology) bool {
	l, ok := top.LinkFrom(e.From)
	return ok && l.To == e.To
}

// Unverified reports whether the link may be up although the controller cannot see it: one of
// its switches is disconnected, or maybeUp reports that its links are not known yet. If
// maybeUp is nil, only the former counts.
func (e Edge) Unverified(top *network.Topology, maybeUp func(Edge) bool) bool {
	return !top.Has(e.From.Switch) || !top.Has(e.To.Switch) || maybeUp != nil && !e.InTopology(top) && maybeUp(e)
}

// grower builds a tree.
type grower struct {
	top  *network.Topology
	old  Tree
	want Want
	room Room
	// uplink holds the link by which each switch is reached, except that of the root.
	uplink map[openflow.DatapathID]Edge

	// The graph for the search has an arc for each link. After those it has one for each
	// switch, from an additional node that stands for the whole tree.
	graph   *graph.Graph
	weights graph.Weights
}

func (g *grower) has(d openflow.DatapathID) bool {
	_, ok := g.uplink[d]
	return ok || d == g.want.Root.Switch
}

// missing returns the wanted switches that are not reached yet.
func (g *grower) missing() (out []openflow.DatapathID) {
	for _, d := range g.want.Switches {
		if !g.has(d) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// connectMissing extends the tree to the missing switches, and returns the reason for each that
// it cannot reach.
func (g *grower) connectMissing() map[openflow.DatapathID]error {
	refused := map[openflow.DatapathID]error{}
	missing := g.missing()
	if len(missing) == 0 {
		return refused
	}
	g.buildGraph()
	for len(missing) > 0 {
		g.setWeights(func(network.Link) float64 { return -1 })
		i, path := g.nearest(missing)
		if path == nil {
			break
		}
		for _, e := range path {
			g.uplink[e.To.Switch] = e
		}
		missing = slices.Delete(missing, i, i+1)
		missing = slices.DeleteFunc(missing, g.has) // missing switches may lie on the path
	}
	for _, d := range missing {
		refused[d] = g.refusalReason(d)
	}
	return refused
}

// buildGraph builds the graph for the search.
func (g *grower) buildGraph() {
	n := len(g.top.Switches)
	arcs := make([]graph.Arc, 0, len(g.top.Links)+n)
	for _, l := range g.top.Links {
		from, _ := g.top.Index(l.From.Switch)
		to, _ := g.top.Index(l.To.Switch)
		arcs = append(arcs, graph.Arc{From: from, To: to})
	}
	for i := range g.top.Switches {
		arcs = append(arcs, graph.Arc{From: n, To: i})
	}
	g.graph, _ = graph.New(n+1, arcs) // the arcs' ends are nodes of the topology
	g.weights = make(graph.Weights, len(arcs))
}

// setWeights sets the cost of each arc; an arc whose cost is negative cannot be used. full returns the
// cost of a link without room. The arc to a switch of the tree costs nothing, so no path leads over
// links to such a switch.
func (g *grower) setWeights(full func(network.Link) float64) {
	for i, l := range g.top.Links {
		e := Edge{l.From, l.To}
		switch {
		case !g.room.has(e, g.want.Rate):
			g.weights[i] = full(l)
		case slices.Contains(g.old.Edges, e):
			g.weights[i] = 0 // prefer links of the old tree
		default:
			g.weights[i] = 1
		}
	}
	for i, d := range g.top.Switches {
		w := &g.weights[len(g.top.Links)+i]
		if *w = -1; g.has(d) {
			*w = 0
		}
	}
}

// nearest returns the index of the switch that the fewest links connect to the tree, and the
// path to it; the path is nil if there is none.
func (g *grower) nearest(of []openflow.DatapathID) (int, []Edge) {
	fan, ok := g.graph.ShortestTree(len(g.top.Switches), g.weights)
	best, least, end := -1, math.Inf(1), 0
	for i, d := range of {
		if n, known := g.top.Index(d); ok && known && fan.Cost(n) < least {
			best, least, end = i, fan.Cost(n), n
		}
	}
	if best < 0 {
		return best, nil
	}
	p, _ := fan.Path(end)
	path := []Edge{}
	for _, arc := range p.Arcs {
		if arc < len(g.top.Links) {
			l := g.top.Links[arc]
			path = append(path, Edge{l.From, l.To})
		}
	}
	return best, path
}

// keepUnverified keeps the old paths to refused switches that are disconnected or whose links
// are not known yet, because such a switch may still copy.
func (g *grower) keepUnverified(refused map[openflow.DatapathID]error) {
	prev := g.old.uplinks()
	for d := range refused {
		var path []Edge
		for at := d; !g.has(at); {
			e, ok := prev[at]
			if !ok || len(path) > len(g.old.Edges) || !e.Unverified(g.top, g.want.Unverified) && !(e.InTopology(g.top) && g.room.has(e, g.want.Rate)) {
				path = nil
				break
			}
			path = append(path, e)
			at = e.From.Switch
		}
		for _, e := range path {
			g.uplink[e.To.Switch] = e
		}
		if g.has(d) {
			delete(refused, d)
		}
	}
}

// prune returns the tree without branches that lead to no wanted switch.
func (g *grower) prune() Tree {
	t, kept := Tree{Root: g.want.Root}, map[openflow.DatapathID]bool{}
	for _, d := range g.want.Switches {
		for !kept[d] && g.has(d) {
			kept[d] = true
			if e, ok := g.uplink[d]; ok {
				t.Edges = append(t.Edges, e)
				d = e.From.Switch
			}
		}
	}
	t.sort()
	return t
}

package tree

import (
	"math"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/openflow"
)

// Want is what a channel needs of its tree.
type Want struct {
	// Root is the port by which it comes.
	Root network.PortRef
	// Rate is what it may send, in bit/s.
	Rate uint64
	// Switches are those behind which it is watched.
	Switches []openflow.DatapathID
	// Unsure says of a link that the topology does not have whether it may be there all the
	// same, like those of a switch that has just been connected again. nil: none may.
	Unsure func(Edge) bool
}

// Room says how much a channel may send over the link that leaves by a port, and how much
// all channels together, in bit/s. all is zero where that is not known; then there is room.
type Room func(from network.PortRef) (left, all uint64)

func (r Room) has(e Edge, rate uint64) bool {
	left, all := r(e.From)
	return all == 0 || left >= rate
}

// Grow makes a tree for what is wanted of one that was there before. Links of the old tree
// that are still there and have room stay. Switches that are missing are reached over the
// fewest other links, the nearest first, so that the choice depends on the network alone. A
// switch for which no way has room is refused, and costs the others nothing. One that is
// cut off from the controller, or has been of late, and is reached by no other way, keeps
// the way that it had.
func Grow(top *network.Topology, old Tree, w Want, room Room) (Tree, map[openflow.DatapathID]error) {
	g := &growth{top: top, old: old, want: w, room: room, by: map[openflow.DatapathID]Edge{}}
	kept := grown(w.Root, old.Edges, func(e Edge) bool { return e.In(top) && room.has(e, w.Rate) })
	for _, e := range kept.Edges {
		g.by[e.To.Switch] = e
	}
	refused := g.reach()
	g.keepDark(refused)
	return g.pruned(), refused
}

// In says whether a topology has the link.
func (e Edge) In(top *network.Topology) bool {
	l, ok := top.LinkFrom(e.From)
	return ok && l.To == e.To
}

// Dark says of a link that it may be there whether or not the topology has it: one of its switches
// is not connected, or its links are not known yet, of which unsure knows; nil: no such link is.
func (e Edge) Dark(top *network.Topology, unsure func(Edge) bool) bool {
	return !top.Has(e.From.Switch) || !top.Has(e.To.Switch) || unsure != nil && !e.In(top) && unsure(e)
}

// growth is a tree that is being made.
type growth struct {
	top  *network.Topology
	old  Tree
	want Want
	room Room
	// by has the link by which each switch is reached, but for that of the root.
	by map[openflow.DatapathID]Edge

	// What follows is for the search: an arc for each link, and behind those one for each
	// switch, to it from a node of its own that stands for the tree.
	g       *graph.Graph
	weights graph.Weights
}

func (g *growth) has(d openflow.DatapathID) bool {
	_, ok := g.by[d]
	return ok || d == g.want.Root.Switch
}

// missing are the switches that are wanted and not reached.
func (g *growth) missing() (out []openflow.DatapathID) {
	for _, d := range g.want.Switches {
		if !g.has(d) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// reach leads the tree to what is missing, and says what cannot be reached.
func (g *growth) reach() map[openflow.DatapathID]error {
	refused := map[openflow.DatapathID]error{}
	missing := g.missing()
	if len(missing) == 0 {
		return refused
	}
	g.prepare()
	for len(missing) > 0 {
		g.weigh(func(network.Link) float64 { return -1 })
		i, way := g.nearest(missing)
		if way == nil {
			break
		}
		for _, e := range way {
			g.by[e.To.Switch] = e
		}
		missing = slices.Delete(missing, i, i+1)
		missing = slices.DeleteFunc(missing, g.has) // it may lie on the way
	}
	for _, d := range missing {
		refused[d] = g.why(d)
	}
	return refused
}

// prepare makes the graph.
func (g *growth) prepare() {
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
	g.g, _ = graph.New(n+1, arcs) // the ends are those of the topology
	g.weights = make(graph.Weights, len(arcs))
}

// weigh says what each arc costs; full is what a link costs that has no room. The arc to a
// switch of the tree costs nothing, so no way leads over links to such a one.
func (g *growth) weigh(full func(network.Link) float64) {
	for i, l := range g.top.Links {
		e := Edge{l.From, l.To}
		switch {
		case !g.room.has(e, g.want.Rate):
			g.weights[i] = full(l)
		case slices.Contains(g.old.Edges, e):
			g.weights[i] = 0 // what was there before stays, if it can
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

// nearest is the one of some switches that the fewest links lead to from the tree, and the
// way; nil if there is none.
func (g *growth) nearest(of []openflow.DatapathID) (int, []Edge) {
	fan, ok := g.g.ShortestTree(len(g.top.Switches), g.weights)
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
	way := []Edge{}
	for _, arc := range p.Arcs {
		if arc < len(g.top.Links) {
			l := g.top.Links[arc]
			way = append(way, Edge{l.From, l.To})
		}
	}
	return best, way
}

// keepDark keeps the old ways to what is refused because a switch is not connected, or its
// links are not known yet: it may well go on copying.
func (g *growth) keepDark(refused map[openflow.DatapathID]error) {
	was := g.old.by()
	for d := range refused {
		var way []Edge
		for at := d; !g.has(at); {
			e, ok := was[at]
			if !ok || len(way) > len(g.old.Edges) || !e.Dark(g.top, g.want.Unsure) && !(e.In(g.top) && g.room.has(e, g.want.Rate)) {
				way = nil
				break
			}
			way = append(way, e)
			at = e.From.Switch
		}
		for _, e := range way {
			g.by[e.To.Switch] = e
		}
		if g.has(d) {
			delete(refused, d)
		}
	}
}

// pruned is the tree without what leads to nothing that is wanted.
func (g *growth) pruned() Tree {
	t, kept := Tree{Root: g.want.Root}, map[openflow.DatapathID]bool{}
	for _, d := range g.want.Switches {
		for !kept[d] && g.has(d) {
			kept[d] = true
			if e, ok := g.by[d]; ok {
				t.Edges = append(t.Edges, e)
				d = e.From.Switch
			}
		}
	}
	t.sort()
	return t
}

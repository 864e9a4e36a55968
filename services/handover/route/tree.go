package route

import (
	"cmp"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// node is one switch of an in-tree. It treats packets to the device alike, from whatever port they
// come.
type node struct {
	sw      openflow.DatapathID
	in      uint32 // port by which the packets of the first border that uses the node arrive
	out     uint32
	to      network.PortRef // where out leads; zero at the device
	depth   int             // number of links to the device
	borders int             // number of borders whose packets pass the node
}

// tree is an in-tree from borders to a place.
type tree []node

// find returns the node of a switch, or nil.
func (t tree) find(sw openflow.DatapathID) *node {
	for i := range t {
		if t[i].sw == sw {
			return &t[i]
		}
	}
	return nil
}

// newTree returns an in-tree. The first border gets a path with the fewest links; each other
// border follows its own such path until it meets the tree. The paths of one border to several
// places part only once, so a move changes nothing above that point.
func newTree(top *network.Topology, borders []Border, place network.PortRef) tree {
	t := make(tree, 0, 8)
	for _, r := range borders {
		p, ok := top.FanPath(r.At, place)
		if !ok {
			continue
		}
		begin, depth := len(t), 0
		for i, h := range p.Hops {
			if n := t.find(h.Switch); n != nil {
				depth = n.depth + 1
				break
			}
			n := node{sw: h.Switch, in: h.In, out: h.Out}
			if i < len(p.Hops)-1 {
				n.to = network.PortRef{Switch: p.Hops[i+1].Switch, Port: p.Hops[i+1].In}
			}
			t = append(t, n)
		}
		for i := len(t) - 1; i >= begin; i-- {
			t[i].depth = depth
			depth++
		}
		for n := t.find(r.At.Switch); n != nil; n = t.find(n.to.Switch) {
			n.borders++
			if n.to.IsZero() {
				break
			}
		}
	}
	return t
}

// path returns the path of packets that enter at a port.
func (t tree) path(from network.PortRef) []network.Hop {
	var out []network.Hop
	for n := t.find(from.Switch); n != nil; n = t.find(n.to.Switch) {
		out = append(out, network.Hop{Switch: n.sw, In: from.Port, Out: n.out})
		if n.to.IsZero() {
			break
		}
		from = n.to
	}
	return out
}

// order returns the switches, those nearest to the device first.
func (t tree) order() []openflow.DatapathID {
	sorted := slices.Clone(t)
	slices.SortStableFunc(sorted, func(a, b node) int { return cmp.Compare(a.depth, b.depth) })
	out := make([]openflow.DatapathID, len(sorted))
	for i, n := range sorted {
		out[i] = n.sw
	}
	return out
}

// branch returns the shortest path to a second place from a switch that the packets of all borders
// pass. trunk is the first border's path.
func (t tree) branch(top *network.Topology, trunk []network.Hop, borders int, to network.PortRef) ([]network.Hop, bool) {
	end, ok := top.Index(to.Switch)
	if !ok {
		return nil, false
	}
	const unseen, source = -2, -1
	via := make([]int, len(top.Switches)) // index in found of the link that leads to each switch
	for i := range via {
		via[i] = unseen
	}
	var found []network.Link
	var queue []openflow.DatapathID
	for _, h := range trunk {
		if i, ok := top.Index(h.Switch); ok && t.find(h.Switch).borders == borders {
			via[i] = source
			queue = append(queue, h.Switch)
		}
	}
	for len(queue) > 0 && via[end] == unseen {
		for _, l := range top.LinksFrom(queue[0]) {
			i, _ := top.Index(l.To.Switch)
			if via[i] != unseen {
				continue
			}
			via[i] = len(found)
			found = append(found, l)
			queue = append(queue, l.To.Switch)
		}
		queue = queue[1:]
	}
	if via[end] == unseen {
		return nil, false
	}
	return traceBack(top, trunk, found, via, to), true
}

// traceBack returns the path that a search has found.
func traceBack(top *network.Topology, trunk []network.Hop, found []network.Link, via []int, to network.PortRef) []network.Hop {
	out := to.Port
	var back []network.Hop
	sw := to.Switch
	for {
		i, _ := top.Index(sw)
		if via[i] < 0 {
			break
		}
		l := found[via[i]]
		back = append(back, network.Hop{Switch: sw, In: l.To.Port, Out: out})
		sw, out = l.From.Switch, l.From.Port
	}
	join := network.Hop{Switch: sw, Out: out}
	for _, h := range trunk {
		if h.Switch == sw {
			join.In = h.In
		}
	}
	back = append(back, join)
	slices.Reverse(back)
	return back
}

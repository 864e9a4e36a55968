package tree

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// outLinks holds the links by which a channel leaves each switch, by the port by which it
// enters there.
type outLinks map[network.PortRef][]Edge

func (f outLinks) add(at network.PortRef, e Edge) {
	if !slices.Contains(f[at], e) {
		f[at] = append(f[at], e)
	}
}

// outLinks returns the links of the tree by the port by which the channel enters the switch before
// them.
func (t Tree) outLinks() outLinks {
	f, in := outLinks{}, t.InPorts()
	for _, e := range t.Edges {
		f.add(network.PortRef{Switch: e.From.Switch, Port: in[e.From.Switch]}, e)
	}
	return f
}

// Bounces reports whether a change of trees would, between two messages to the switch of the
// new root, send packets back by the port by which they came. This happens if a gateway behind
// the new root's port gets its copies by OFPP_IN_PORT (OpenFlow 1.3, section A.2.1), and the
// channel entered the switch by another port before. The old tree must then be removed first.
func Bounces(prev, next Tree, copies map[openflow.DatapathID]*Groups) bool {
	in, had := prev.InPorts()[next.Root.Switch]
	g := copies[next.Root.Switch]
	return had && in != next.Root.Port && g != nil && g.reversed()
}

// HasLoop reports whether the rules of several trees together might form a loop.
func HasLoop(trees ...Tree) bool {
	all := outLinks{}
	for _, t := range trees {
		for at, edges := range t.outLinks() {
			for _, e := range edges {
				all.add(at, e)
			}
		}
	}
	done := map[network.PortRef]bool{} // false while the walk is below the port
	var loops func(at network.PortRef) bool
	loops = func(at network.PortRef) bool {
		if finished, visited := done[at]; visited {
			return !finished
		}
		done[at] = false
		for _, e := range all[at] {
			if loops(e.To) {
				return true
			}
		}
		done[at] = true
		return false
	}
	for at := range all {
		if loops(at) {
			return true
		}
	}
	return false
}

// transition returns the links that the channel uses while packets are in flight on its former tree,
// which has the same root. Switches that both trees reach by the same path forward over the links of
// t. Such a switch omits a link of the former tree if every wanted switch behind the link now gets the
// channel from the same switch by another link: the change of this one switch then redirects the
// channel. Elsewhere the former links stay.
func (t Tree) transition(former Tree) outLinks {
	if former.Root != t.Root {
		return t.outLinks()
	}
	out, kept := t.outLinks(), former.Common(t).InPorts()
	partsFrom, partedFrom := t.divergence(kept), former.divergence(kept)
	stays := map[Edge]bool{}
	for d, e := range partedFrom {
		if now, wanted := partsFrom[d]; wanted && now.From.Switch != e.From.Switch {
			stays[e] = true
		}
	}
	for at, edges := range former.outLinks() {
		for _, e := range edges {
			if kept[at.Switch] != at.Port || stays[e] {
				out.add(at, e)
			}
		}
	}
	return out
}

// divergence returns, for each switch that is not in kept, the link by which its path leaves
// the kept switches.
func (t Tree) divergence(kept map[openflow.DatapathID]uint32) map[openflow.DatapathID]Edge {
	by, out := t.uplinks(), map[openflow.DatapathID]Edge{}
	for d, e := range by {
		if kept[d] == e.To.Port {
			continue
		}
		for up, more := by[e.From.Switch]; more && kept[e.From.Switch] != up.To.Port; up, more = by[e.From.Switch] {
			e = up
		}
		out[d] = e
	}
	return out
}

// Duplicates reports whether a switch may get packets twice while a channel moves to t from its former
// tree, which has the same root.
func (t Tree) Duplicates(former Tree) bool {
	all, wanted, reached := t.transition(former), t.InPorts(), map[openflow.DatapathID]bool{}
	for todo := []network.PortRef{t.Root}; len(todo) > 0; todo = todo[1:] {
		if _, ok := wanted[todo[0].Switch]; reached[todo[0].Switch] && ok {
			return true
		}
		reached[todo[0].Switch] = true
		for _, e := range all[todo[0]] {
			todo = append(todo, e.To)
		}
	}
	// A switch behind a link that both trees have, but reach by different paths, forwards
	// packets of the former tree by its new links too, before the former links are removed.
	prev, now := former.outLinks(), t.outLinks()
	return slices.ContainsFunc(t.Shared(former), func(e Edge) bool {
		return slices.ContainsFunc(now[e.To], func(on Edge) bool { return !slices.Contains(prev[e.To], on) })
	})
}

// Shared returns the links that both trees have, and to which their paths differ.
func (t Tree) Shared(former Tree) (edges []Edge) {
	kept := former.Common(t)
	for _, e := range t.Edges {
		if slices.Contains(former.Edges, e) && !slices.Contains(kept.Edges, e) {
			edges = append(edges, e)
		}
	}
	return edges
}

package tree

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// forks are the links by which a channel goes on, by the ports by which switches take it up.
type forks map[network.PortRef][]Edge

func (f forks) add(at network.PortRef, e Edge) {
	if !slices.Contains(f[at], e) {
		f[at] = append(f[at], e)
	}
}

// forks are those of the tree.
func (t Tree) forks() forks {
	f, in := forks{}, t.In()
	for _, e := range t.Edges {
		f.add(network.PortRef{Switch: e.From.Switch, Port: in[e.From.Switch]}, e)
	}
	return f
}

// Bounces reports whether a change of trees would, between two messages to the switch of the
// new root, send packets back by the port by which they came: a gateway behind the port of the
// new root gets its copies by OFPP_IN_PORT (OpenFlow 1.3, section A.2.1), and the switch got the
// channel by another port before. The former tree has to be removed first then.
func Bounces(was, next Tree, copies map[openflow.DatapathID]*Groups) bool {
	in, had := was.In()[next.Root.Switch]
	g := copies[next.Root.Switch]
	return had && in != next.Root.Port && g != nil && g.reversed()
}

// Circle says whether a packet might go in a circle by the rules of some trees together.
func Circle(trees ...Tree) bool {
	all := forks{}
	for _, t := range trees {
		for at, edges := range t.forks() {
			for _, e := range edges {
				all.add(at, e)
			}
		}
	}
	over := map[network.PortRef]bool{} // false where the walk has come by
	var circle func(at network.PortRef) bool
	circle = func(at network.PortRef) bool {
		if done, been := over[at]; been {
			return !done
		}
		over[at] = false
		for _, e := range all[at] {
			if circle(e.To) {
				return true
			}
		}
		over[at] = true
		return false
	}
	for at := range all {
		if circle(at) {
			return true
		}
	}
	return false
}

// beside are the forks of a tree while packets are under way on the former one, from the same
// root. Switches that both reach by one way go on as the tree says, and leave out a link of the
// former one if all that is wanted behind it gets the channel from the same switch, by others:
// the one change has it leave here and not there. Elsewhere the former links stay.
func (t Tree) beside(former Tree) forks {
	if former.Root != t.Root {
		return t.forks()
	}
	out, kept := t.forks(), former.Common(t).In()
	partsFrom, partedFrom := t.parts(kept), former.parts(kept)
	stays := map[Edge]bool{}
	for d, e := range partedFrom {
		if now, wanted := partsFrom[d]; wanted && now.From.Switch != e.From.Switch {
			stays[e] = true
		}
	}
	for at, edges := range former.forks() {
		for _, e := range edges {
			if kept[at.Switch] != at.Port || stays[e] {
				out.add(at, e)
			}
		}
	}
	return out
}

// parts has for each switch that is not kept the link by which its way leaves those that are.
func (t Tree) parts(kept map[openflow.DatapathID]uint32) map[openflow.DatapathID]Edge {
	by, out := t.by(), map[openflow.DatapathID]Edge{}
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

// Twice says whether a switch may get packets twice while a channel is moved from its former tree,
// from the same root.
func (t Tree) Twice(former Tree) bool {
	all, wanted, reached := t.beside(former), t.In(), map[openflow.DatapathID]bool{}
	for todo := []network.PortRef{t.Root}; len(todo) > 0; todo = todo[1:] {
		if _, is := wanted[todo[0].Switch]; reached[todo[0].Switch] && is {
			return true
		}
		reached[todo[0].Switch] = true
		for _, e := range all[todo[0]] {
			todo = append(todo, e.To)
		}
	}
	// A switch on a link that is of both, by different ways, sends packets of the former way on
	// by what is new, before that is left.
	was, now := former.forks(), t.forks()
	return slices.ContainsFunc(t.Shared(former), func(e Edge) bool {
		return slices.ContainsFunc(now[e.To], func(on Edge) bool { return !slices.Contains(was[e.To], on) })
	})
}

// Shared are the links that both trees have, and reach by different ways.
func (t Tree) Shared(former Tree) (edges []Edge) {
	kept := former.Common(t)
	for _, e := range t.Edges {
		if slices.Contains(former.Edges, e) && !slices.Contains(kept.Edges, e) {
			edges = append(edges, e)
		}
	}
	return edges
}

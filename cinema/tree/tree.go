package tree

import (
	"cmp"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Edge is a link from one switch to another, by the ports at its ends.
type Edge struct {
	From network.PortRef `json:"from"`
	To   network.PortRef `json:"to"`
}

// Tree is the way of one channel. The zero value reaches nothing.
type Tree struct {
	// Root is the port by which the channel comes into the network.
	Root network.PortRef `json:"root"`
	// Edges are the links by which it goes on, by the switches to which they lead: to each
	// of them one, and none to that of the root.
	Edges []Edge `json:"edges,omitempty"`
}

// Equal says whether two trees are the same way.
func (t Tree) Equal(o Tree) bool { return t.Root == o.Root && slices.Equal(t.Edges, o.Edges) }

// In has the port by which each switch gets the channel.
func (t Tree) In() map[openflow.DatapathID]uint32 {
	in := make(map[openflow.DatapathID]uint32, len(t.Edges)+1)
	if !t.Root.IsZero() {
		in[t.Root.Switch] = t.Root.Port
	}
	for _, e := range t.Edges {
		in[e.To.Switch] = e.To.Port
	}
	return in
}

// Moves says whether a way of t becomes another one in next. What only grows or only shrinks
// does not move.
func (t Tree) Moves(next Tree) bool {
	kept := t.Common(next)
	return len(kept.Edges) < len(t.Edges) && len(kept.Edges) < len(next.Edges) || !t.Root.IsZero() && t.Root != next.Root
}

// Leaves says whether next, from the same root, leaves out a switch that t reaches.
func (t Tree) Leaves(next Tree) bool {
	in := next.In()
	return t.Root == next.Root && slices.ContainsFunc(t.Edges, func(e Edge) bool { _, reached := in[e.To.Switch]; return !reached })
}

// by has the link by which each switch gets the channel, but for that of the root.
func (t Tree) by() map[openflow.DatapathID]Edge {
	by := make(map[openflow.DatapathID]Edge, len(t.Edges))
	for _, e := range t.Edges {
		by[e.To.Switch] = e
	}
	return by
}

// depth is how many links each switch is from the root.
func (t Tree) depth() map[openflow.DatapathID]int {
	by, depth := t.by(), map[openflow.DatapathID]int{}
	for d := range by {
		for at := d; at != t.Root.Switch && depth[d] <= len(by); at = by[at].From.Switch {
			depth[d]++
		}
	}
	return depth
}

// Common is what t and next have in common, as far as it hangs together from the root.
func (t Tree) Common(next Tree) Tree {
	if t.Root != next.Root {
		return Tree{}
	}
	return grown(t.Root, t.Edges, func(e Edge) bool { return slices.Contains(next.Edges, e) })
}

// grown is what edges make from a root on, of those that may be used.
func grown(root network.PortRef, edges []Edge, may func(Edge) bool) Tree {
	t, reached := Tree{Root: root}, map[openflow.DatapathID]bool{root.Switch: true}
	for more := true; more; {
		more = false
		for _, e := range edges {
			if reached[e.From.Switch] && !reached[e.To.Switch] && may(e) {
				t.Edges, more = append(t.Edges, e), true
				reached[e.To.Switch] = true
			}
		}
	}
	t.sort()
	return t
}

// sort brings the edges into their order.
func (t *Tree) sort() {
	slices.SortFunc(t.Edges, func(a, b Edge) int { return cmp.Compare(a.To.Switch, b.To.Switch) })
}

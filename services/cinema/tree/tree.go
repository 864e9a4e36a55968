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

// Tree is the path of one channel to all its switches. The zero value reaches nothing.
type Tree struct {
	// Root is the port by which the channel enters the network.
	Root network.PortRef `json:"root"`
	// Edges are the links by which the channel is forwarded, ordered by the switch to which
	// they lead. One link leads to each switch, and none to that of the root.
	Edges []Edge `json:"edges,omitempty"`
}

// Equal reports whether two trees are the same.
func (t Tree) Equal(o Tree) bool { return t.Root == o.Root && slices.Equal(t.Edges, o.Edges) }

// InPorts returns the port by which each switch gets the channel.
func (t Tree) InPorts() map[openflow.DatapathID]uint32 {
	in := make(map[openflow.DatapathID]uint32, len(t.Edges)+1)
	if !t.Root.IsZero() {
		in[t.Root.Switch] = t.Root.Port
	}
	for _, e := range t.Edges {
		in[e.To.Switch] = e.To.Port
	}
	return in
}

// Moves reports whether next reaches part of the network by another path than t. A tree that
// only grows or only shrinks does not move.
func (t Tree) Moves(next Tree) bool {
	kept := t.Common(next)
	return len(kept.Edges) < len(t.Edges) && len(kept.Edges) < len(next.Edges) || !t.Root.IsZero() && t.Root != next.Root
}

// Prunes reports whether next has the same root and omits a switch that t reaches.
func (t Tree) Prunes(next Tree) bool {
	in := next.InPorts()
	return t.Root == next.Root && slices.ContainsFunc(t.Edges, func(e Edge) bool { _, reached := in[e.To.Switch]; return !reached })
}

// uplinks returns the link by which each switch gets the channel, except the root's switch.
func (t Tree) uplinks() map[openflow.DatapathID]Edge {
	by := make(map[openflow.DatapathID]Edge, len(t.Edges))
	for _, e := range t.Edges {
		by[e.To.Switch] = e
	}
	return by
}

// depths returns how many links each switch is from the root.
func (t Tree) depths() map[openflow.DatapathID]int {
	by, depth := t.uplinks(), map[openflow.DatapathID]int{}
	for d := range by {
		for at := d; at != t.Root.Switch && depth[d] <= len(by); at = by[at].From.Switch {
			depth[d]++
		}
	}
	return depth
}

// Common returns the links that t and next share, as far as they are connected to the root.
func (t Tree) Common(next Tree) Tree {
	if t.Root != next.Root {
		return Tree{}
	}
	return connected(t.Root, t.Edges, func(e Edge) bool { return slices.Contains(next.Edges, e) })
}

// connected returns the tree of those edges that are connected to the root by edges for which may
// returns true.
func connected(root network.PortRef, edges []Edge, may func(Edge) bool) Tree {
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

// sort sorts the edges by the switch to which they lead.
func (t *Tree) sort() {
	slices.SortFunc(t.Edges, func(a, b Edge) int { return cmp.Compare(a.To.Switch, b.To.Switch) })
}

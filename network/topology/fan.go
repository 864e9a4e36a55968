package topology

import (
	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/openflow"
)

// fan is the tree of the paths of fewest hops from a switch to all others. It is
// searched once for each snapshot.
func (t *Topology) fan(from openflow.DatapathID) (*graph.Tree, bool) {
	i, ok := t.index[from]
	if !ok {
		return nil, false
	}
	if f := t.fans[i].Load(); f != nil {
		return f, true
	}
	f, ok := t.g.ShortestTree(i, t.hops)
	if ok {
		t.fans[i].Store(f)
	}
	return f, ok
}

// FanPath is a path of fewest hops that enters at from and leaves at to. All such
// paths of one from.Switch together form a tree: two of them, once parted, do not
// meet again.
func (t *Topology) FanPath(from, to PortRef) (Path, bool) {
	f, ok := t.fan(from.Switch)
	end, known := t.index[to.Switch]
	if !ok || !known {
		return Path{}, false
	}
	g, ok := f.Path(end)
	if !ok {
		return Path{}, false
	}
	return t.path(g, from, to), true
}

// Distance is the number of links between two switches, false if there is no way.
func (t *Topology) Distance(from, to openflow.DatapathID) (int, bool) {
	f, ok := t.fan(from)
	end, known := t.index[to]
	if !ok || !known || !f.Reaches(end) {
		return 0, false
	}
	return int(f.Cost(end)), true
}

package topology

import (
	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/openflow"
)

// shortestTree returns the tree of paths with the fewest hops from a switch to all others. It is
// computed once for each snapshot.
func (t *Topology) shortestTree(from openflow.DatapathID) (*graph.Tree, bool) {
	i, ok := t.index[from]
	if !ok {
		return nil, false
	}
	if f := t.shortestTrees[i].Load(); f != nil {
		return f, true
	}
	f, ok := t.g.ShortestTree(i, t.hops)
	if ok {
		t.shortestTrees[i].Store(f)
	}
	return f, ok
}

// FanPath returns a path with the fewest hops that enters at from and leaves at to. All such
// paths from one switch form a tree: two of them that have parted do not meet again.
func (t *Topology) FanPath(from, to PortRef) (Path, bool) {
	f, ok := t.shortestTree(from.Switch)
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

// Distance returns the number of links between two switches, and false if there is no path.
func (t *Topology) Distance(from, to openflow.DatapathID) (int, bool) {
	f, ok := t.shortestTree(from)
	end, known := t.index[to]
	if !ok || !known || !f.Reaches(end) {
		return 0, false
	}
	return int(f.Cost(end)), true
}

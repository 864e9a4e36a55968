package topology

import "math"

// Widest returns the path whose narrowest link is widest, and the width of that link, among the
// paths that enter at from and leave at to. A path is considered if it has at most longer links more
// than the shortest path; longer is at most graph.MostLonger. Of equally wide paths Widest returns
// the shortest. width returns the width of a link; a link of width zero is excluded. width is called
// only for the links that the search
// reaches, so that on a large network with many equal paths Widest takes a small part of the
// time that Find takes. A path within one switch has the width math.MaxUint64.
func (t *Topology) Widest(from, to PortRef, longer int, width func(Link) uint64) (p Path, wide uint64, ok bool) {
	a, b, ok := t.ends(from, to)
	if !ok {
		return Path{}, 0, false
	}
	toward := t.hopsToward[b].Load()
	if toward == nil {
		hops, _ := t.g.HopsTo(b)
		toward = &hops
		t.hopsToward[b].Store(toward)
	}
	g, w, ok := t.g.WidestPath(a, b, longer, func(arc int) float64 { return float64(width(t.Links[arc])) }, *toward)
	if !ok {
		return Path{}, 0, false
	}
	if wide = uint64(w); math.IsInf(w, 1) {
		wide = math.MaxUint64
	}
	return t.path(g, from, to), wide, true
}

package topology

import "math"

// Widest is, of the paths that enter at from, leave at to and are longer than the shortest by so
// many links at most (graph.MostLonger or fewer), the one whose narrowest link is widest, and of
// several the shortest, with that width. width tells how wide a link is; one of no width takes
// no part. It is asked about the links that the search comes to, so that on a large network
// with many equal ways it takes a small part of the time that Find does. A path within one
// switch is as wide as can be, math.MaxUint64.
func (t *Topology) Widest(from, to PortRef, longer int, width func(Link) uint64) (p Path, wide uint64, ok bool) {
	a, b, ok := t.ends(from, to)
	if !ok {
		return Path{}, 0, false
	}
	toward := t.toward[b].Load()
	if toward == nil {
		hops, _ := t.g.HopsTo(b)
		toward = &hops
		t.toward[b].Store(toward)
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

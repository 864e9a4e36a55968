package graph

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestWidestPath compares with all paths that are not too long: none is wider, and none of that
// width is shorter.
func TestWidestPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "nodes")
		node := rapid.IntRange(0, n-1)
		var arcs []Arc
		var width []float64
		for range rapid.IntRange(0, 20).Draw(t, "arcs") {
			arcs = append(arcs, Arc{node.Draw(t, "from"), node.Draw(t, "to")})
			width = append(width, float64(rapid.IntRange(0, 4).Draw(t, "width")))
		}
		g, err := New(n, arcs)
		if err != nil {
			t.Fatal(err)
		}
		from, to, longer := node.Draw(t, "begin"), node.Draw(t, "end"), rapid.IntRange(0, MostLonger).Draw(t, "longer")
		toward, _ := g.HopsTo(to)
		got, wide, ok := g.WidestPath(from, to, longer, func(arc int) float64 { return width[arc] }, toward)
		most := 0
		if !math.IsInf(toward[from], 1) {
			most = int(toward[from]) + longer
		}
		best, length := exhaust(g, from, to, most, width, map[int]bool{})
		if ok != (best > 0) {
			t.Fatalf("found %v, and the widest of all paths has %v", ok, best)
		}
		if !ok || from == to {
			return
		}
		if wide != best || len(got.Arcs) != length {
			t.Fatalf("%v of width %v, want %d arcs of width %v", got, wide, length, best)
		}
		at, narrowest := from, math.Inf(1)
		for _, arc := range got.Arcs {
			if g.Arc(arc).From != at {
				t.Fatalf("%v is no path", got)
			}
			at, narrowest = g.Arc(arc).To, min(narrowest, width[arc])
		}
		if at != to || narrowest != wide {
			t.Fatalf("%v of width %v ends at %d with %v", got, wide, at, narrowest)
		}
	})
}

// exhaust tries every path of at most so many arcs. It returns the width of the widest, zero if
// there is none, and the length of the shortest path of that width.
func exhaust(g *Graph, at, to, most int, width []float64, seen map[int]bool) (best float64, length int) {
	if at == to {
		return math.Inf(1), 0
	}
	if most == 0 {
		return 0, 0
	}
	seen[at] = true
	defer delete(seen, at)
	for i := range g.Arcs() {
		if a := g.Arc(i); a.From == at && !seen[a.To] {
			rest, long := exhaust(g, a.To, to, most-1, width, seen)
			if w := min(rest, width[i]); w > best || w == best && w > 0 && long+1 < length {
				best, length = w, long+1
			}
		}
	}
	return best, length
}

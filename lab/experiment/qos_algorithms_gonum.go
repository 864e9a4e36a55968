package experiment

import (
	"math"
	"time"

	"gonum.org/v1/gonum/graph/path"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/sluice-net/sluice/network/graph"
)

// pathOracle is gonum's graph for one class.
type pathOracle struct{ g *simple.WeightedDirectedGraph }

// oracle returns gonum's graph, or nil if gonum has no algorithm for the class. Of parallel arcs it
// keeps the best.
func (n *pathNet) oracle(c *pathClass) *pathOracle {
	if c.gonum == nil {
		return nil
	}
	w, wide := c.gonum(n)
	g := simple.NewWeightedDirectedGraph(0, math.Inf(1))
	for i := range n.g.Nodes() {
		g.AddNode(simple.Node(i))
	}
	for i := range n.g.Arcs() {
		a := n.g.Arc(i)
		if a.From == a.To || wide && n.width[i] < pathFloor {
			continue
		}
		if old, ok := g.Weight(int64(a.From), int64(a.To)); !ok || w[i] < old {
			g.SetWeightedEdge(g.NewWeightedEdge(simple.Node(a.From), simple.Node(a.To), w[i]))
		}
	}
	return &pathOracle{g}
}

// search returns the least sum from node 0, and the time of the search.
func (o *pathOracle) search(to int) (float64, time.Duration) {
	begin := time.Now()
	_, weight := path.DijkstraFromTo(simple.Node(0), simple.Node(to), o.g)
	return weight, time.Since(begin)
}

// agrees reports whether a solution agrees with the least sum that gonum has found. If the problem
// has one bound, the least sum shows only whether that bound can be met. Otherwise it must equal
// the value of the solution.
func (c *pathClass) agrees(p graph.Problem, s graph.Solution, found bool, least float64) bool {
	if len(p.Bounds) == 1 {
		return found == (least <= p.Bounds[0].Max)
	}
	return found == !math.IsInf(least, 1) && (!found || s.Value == least)
}

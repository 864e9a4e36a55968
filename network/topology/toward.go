package topology

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/openflow"
)

// Toward is how every switch comes nearer to one of them. Switches and links are told by their
// places among those of the topology.
type Toward struct {
	t       *Topology
	weights graph.Weights
	cost    []float64
	nearest []int32
}

// Toward finds the costs of the cheapest ways from all switches to one. It is false for a
// switch that is not there.
func (t *Topology) Toward(to openflow.DatapathID, m Metric) (w Toward, here bool) {
	i, here := t.index[to]
	if !here {
		return w, false
	}
	w.t, w.weights = t, t.weights(m)
	if m == MetricHops {
		w.cost, w.nearest = t.g.HopsTo(i)
		return w, true
	}
	w.cost = t.g.CostsTo(i, w.weights)
	for n, c := range w.cost {
		if !math.IsInf(c, 1) {
			w.nearest = append(w.nearest, int32(n))
		}
	}
	slices.SortStableFunc(w.nearest, func(a, b int32) int { return cmp.Compare(w.cost[a], w.cost[b]) })
	return w, true
}

// Nearest are the switches from which there is a way, those with the cheapest first: the one
// that it is about at the head. They are not to be changed.
func (w Toward) Nearest() []int32 { return w.nearest }

// Cost is that of the cheapest way from a switch, +Inf if there is none.
func (w Toward) Cost(from int32) float64 { return w.cost[from] }

// Links appends the links by which a switch comes nearer, by port: those that begin a cheapest
// way; with unequal, all to switches that are nearer. Whoever goes on by such links does not
// go in a circle.
func (w Toward) Links(out []int32, from int32, unequal bool) []int32 {
	here := w.cost[from]
	if math.IsInf(here, 1) {
		return out
	}
	// What adds up in another order is as cheap.
	most := here * (1 + 1e-9)
	for k := w.t.first[from]; k < w.t.first[from+1]; k++ {
		far := w.cost[w.t.heads[k]]
		if far < here && (unequal || far+w.weights[k] <= most) {
			out = append(out, int32(k))
		}
	}
	return out
}

package topology

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/openflow"
)

// Toward holds the cheapest paths from all switches to one of them. Switches and links are given
// by their indices in the topology.
type Toward struct {
	t       *Topology
	weights graph.Weights
	cost    []float64
	nearest []int32
}

// Toward computes the costs of the cheapest paths from all switches to one. It returns false if
// the switch is not part of the snapshot.
func (t *Topology) Toward(to openflow.DatapathID, m Metric) (w Toward, ok bool) {
	i, ok := t.index[to]
	if !ok {
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

// Nearest returns the switches from which there is a path, the cheapest first; the destination
// itself is the first. The slice must not be modified.
func (w Toward) Nearest() []int32 { return w.nearest }

// Cost returns the cost of the cheapest path from a switch, +Inf if there is none.
func (w Toward) Cost(from int32) float64 { return w.cost[from] }

// Links appends the links on which packets come closer to the destination, by port: the first
// links of the cheapest paths or, if unequal is true, all links to closer switches. Forwarding
// along such links has no loops.
func (w Toward) Links(out []int32, from int32, unequal bool) []int32 {
	here := w.cost[from]
	if math.IsInf(here, 1) {
		return out
	}
	// Allow for rounding: the same costs may have been summed in another order.
	most := here * (1 + 1e-9)
	for k := w.t.firstLink[from]; k < w.t.firstLink[from+1]; k++ {
		far := w.cost[w.t.heads[k]]
		if far < here && (unequal || far+w.weights[k] <= most) {
			out = append(out, int32(k))
		}
	}
	return out
}

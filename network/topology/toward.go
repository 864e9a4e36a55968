package topology

import (
	"math"

	"github.com/sluice-net/sluice/openflow"
)

// Toward is how every switch comes nearer to one of them.
type Toward struct {
	t    *Topology
	m    Metric
	cost []float64 // by the index of the switch
}

// Toward finds the costs of the cheapest ways from all switches to one. It is false for a
// switch that is not there.
func (t *Topology) Toward(to openflow.DatapathID, m Metric) (Toward, bool) {
	i, ok := t.index[to]
	if !ok {
		return Toward{}, false
	}
	return Toward{t: t, m: m, cost: t.g.CostsTo(i, t.weights(m))}, true
}

// Cost is that of the cheapest way from a switch, false if there is none.
func (w Toward) Cost(from openflow.DatapathID) (float64, bool) {
	i, ok := w.t.index[from]
	if !ok || math.IsInf(w.cost[i], 1) {
		return 0, false
	}
	return w.cost[i], true
}

// Links appends the links by which a switch comes nearer, by port: those that begin a cheapest
// way; with unequal, all to switches that are nearer. Whoever goes on by such links does not
// go in a circle.
func (w Toward) Links(out []Link, from openflow.DatapathID, unequal bool) []Link {
	i, ok := w.t.index[from]
	if !ok || math.IsInf(w.cost[i], 1) {
		return out
	}
	// What adds up in another order is as cheap.
	most := w.cost[i] * (1 + 1e-9)
	for k := w.t.first[i]; k < w.t.first[i+1]; k++ {
		far := w.cost[w.t.g.Arc(k).To]
		if far < w.cost[i] && (unequal || far+cost(w.t.Links[k], w.m) <= most) {
			out = append(out, w.t.Links[k])
		}
	}
	return out
}

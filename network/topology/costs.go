package topology

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/graph"
)

// metricSum is a metric of links whose values add up along a path.
type metricSum uint8

const (
	hops metricSum = iota
	delay
	jitter
	loss
	numSums
)

var sumNames = [numSums]string{"number of hops", "delay", "jitter", "loss"}

func (m metricSum) String() string { return sumNames[m] }

// minimised returns the metric whose sum an objective minimises. For the widest path this is the
// number of hops, which decides among paths of equal width.
func (o Objective) minimised() metricSum {
	switch o {
	case ObjectiveDelay:
		return delay
	case ObjectiveJitter:
		return jitter
	case ObjectiveLoss:
		return loss
	}
	return hops
}

// bound returns the request's bound on the metric, zero for none.
func (m metricSum) bound(r Request) float64 {
	switch m {
	case delay:
		return float64(r.MaxDelay)
	case jitter:
		return float64(r.MaxJitter)
	case loss:
		if r.MaxLoss > 0 {
			return lossSum(r.MaxLoss) + lossSlack
		}
	}
	return 0
}

// format formats a sum of the metric for a reader.
func (m metricSum) format(sum float64) string {
	switch m {
	case delay, jitter:
		return time.Duration(sum).String()
	case loss:
		return fmt.Sprintf("%.4g %%", 100*-math.Expm1(-sum/lossUnit))
	}
	return fmt.Sprint(sum)
}

// Loss multiplies along a path: the share that arrives is the product of the links' shares. Its
// logarithm is a sum, here in units that make it a whole number. lossSlack is the largest
// rounding error of a path of thousands of links.
const (
	lossUnit  = 1e12
	lossSlack = 1e4
)

func lossSum(share float64) float64 { return math.Round(-math.Log1p(-share) * lossUnit) }

// weight returns the amount that a link adds to the sum of the metric along a path.
func (m metricSum) weight(l Link) float64 {
	switch m {
	case delay, jitter:
		if unmeasured(l) {
			return float64(unknownLatency)
		}
		if m == jitter {
			return float64(max(0, l.Jitter))
		}
		return float64(max(0, l.Latency))
	case loss:
		return lossSum(max(0, l.Loss))
	}
	return 1
}

// exclusion is the reason why a link takes no part in a search.
type exclusion uint8

const (
	included exclusion = iota
	excluded
	narrow
	unknownCapacity
	notMeasured
	losesAll
	numExclusions
)

var exclusionNames = [numExclusions]string{
	excluded: "excluded by the caller", narrow: "with less available than asked for", unknownCapacity: "of unknown capacity",
	notMeasured: "whose delay is not measured", losesAll: "that lose everything",
}

// exclusionOf returns the reason why a link takes no part in the search, or included, and the
// capacity that the link has available.
func (r Request) exclusionOf(l Link) (exclusion, uint64) {
	free := r.available(l)
	switch {
	case r.Exclude != nil && r.Exclude(l) != "":
		return excluded, free
	case r.needsWidth() && l.Capacity == 0 && free == 0:
		return unknownCapacity, free
	case free < r.MinBandwidth:
		return narrow, free
	case (r.MaxDelay > 0 || r.MaxJitter > 0) && unmeasured(l):
		return notMeasured, free
	case (r.MaxLoss > 0 || r.Objective == ObjectiveLoss) && !(l.Loss < 1):
		return losesAll, free
	}
	return included, free
}

// searchView holds the data about a network's links that depends on one request. Views are reused.
type searchView struct {
	width         graph.Weights      // the links' available capacities, negative for excluded links
	excludedLinks [numExclusions]int // the number of links by reason
}

// fill computes width and excludedLinks of all links.
func (v *searchView) fill(t *Topology, r Request) {
	v.excludedLinks = [numExclusions]int{}
	v.width = v.width[:0]
	for _, l := range t.Links {
		why, free := r.exclusionOf(l)
		v.excludedLinks[why]++
		width := float64(free)
		if why != included {
			width = -1
		}
		v.width = append(v.width, width)
	}
}

// sumWeights returns the links' weights for each sum. They are computed on the first call.
func (t *Topology) sumWeights() *[numSums]graph.Weights {
	t.sums.once.Do(func() {
		for m := range numSums {
			w := make(graph.Weights, len(t.Links))
			for i, l := range t.Links {
				w[i] = m.weight(l)
			}
			t.sums.weights[m] = w
		}
	})
	return &t.sums.weights
}

// sumWeights are the weights of a topology's links.
type sumWeights struct {
	once    sync.Once
	weights [numSums]graph.Weights
}

// problem returns the request as a graph problem, and the metrics that its Bounds are for, in the
// same order. A bound on the minimised sum becomes MaxCost.
func (v *searchView) problem(t *Topology, r Request) (p graph.Problem, bounded []metricSum) {
	weights, objective := t.sumWeights(), r.Objective.minimised()
	p.Cost, p.Width, p.Widest = weights[objective], v.width, r.Objective == ObjectiveWidest
	for m := range numSums {
		most := m.bound(r)
		switch {
		case most == 0:
		case m == objective:
			p.MaxCost = most
		default:
			p.Bounds = append(p.Bounds, graph.Bound{Weights: weights[m], Max: most})
			bounded = append(bounded, m)
		}
	}
	return p, bounded
}

// disconnected returns the reason why there is no path between two connected switches.
func (v *searchView) disconnected() string {
	if a := v.leftOut(); a != "" {
		return "not connected" + a
	}
	return "not connected"
}

// leftOut describes the number of excluded links.
func (v *searchView) leftOut() string {
	var parts []string
	for why, n := range v.excludedLinks {
		if n > 0 && exclusion(why) != included {
			parts = append(parts, fmt.Sprintf("%d %s", n, exclusionNames[why]))
		}
	}
	if parts == nil {
		return ""
	}
	return " (left out: links " + strings.Join(parts, ", ") + ")"
}

package topology

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/graph"
)

// additive is what adds up along a path.
type additive uint8

const (
	hops additive = iota
	delay
	jitter
	loss
	additives
)

var additiveWords = [additives]string{"number of hops", "delay", "jitter", "loss"}

func (m additive) String() string { return additiveWords[m] }

// adds is the sum that an objective makes least; for the widest path it chooses among
// those of equal width.
func (o Objective) adds() additive {
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

// bound is what a request allows of the metric, zero for no bound.
func (m additive) bound(r Request) float64 {
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

// print writes a sum of the metric for a reader.
func (m additive) print(sum float64) string {
	switch m {
	case delay, jitter:
		return time.Duration(sum).String()
	case loss:
		return fmt.Sprintf("%.4g %%", 100*-math.Expm1(-sum/lossUnit))
	}
	return fmt.Sprint(sum)
}

// Loss multiplies along a path: what arrives of it is the product of what arrives of
// its links. The logarithm makes that a sum, in units that make it a whole number.
// lossSlack is what rounding can do to a path of thousands of links.
const (
	lossUnit  = 1e12
	lossSlack = 1e4
)

func lossSum(share float64) float64 { return math.Round(-math.Log1p(-share) * lossUnit) }

// weight is what a link adds to the sum.
func (m additive) weight(l Link) float64 {
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

// out is why a link takes no part in a search.
type out uint8

const (
	in out = iota
	excluded
	narrow
	unknownCapacity
	notMeasured
	dead
	reasons
)

var outWords = [reasons]string{
	excluded: "excluded by the caller", narrow: "with less available than asked for", unknownCapacity: "of unknown capacity",
	notMeasured: "whose delay is not measured", dead: "that lose everything",
}

// judge says whether a link takes part, and what it has available.
func (r Request) judge(l Link) (out, uint64) {
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
		return dead, free
	}
	return in, free
}

// view is a network as one request sees it. It is reused between requests.
type view struct {
	width   graph.Weights // what links have available, negative for those that are out
	outside [reasons]int  // how many links are out, by reason
}

// fill judges all links.
func (v *view) fill(t *Topology, r Request) {
	v.outside = [reasons]int{}
	v.width = v.width[:0]
	for _, l := range t.Links {
		why, free := r.judge(l)
		v.outside[why]++
		width := float64(free)
		if why != in {
			width = -1
		}
		v.width = append(v.width, width)
	}
}

// adding is what links add to each sum, found when first asked for.
func (t *Topology) adding() *[additives]graph.Weights {
	t.sums.once.Do(func() {
		for m := range additives {
			w := make(graph.Weights, len(t.Links))
			for i, l := range t.Links {
				w[i] = m.weight(l)
			}
			t.sums.weights[m] = w
		}
	})
	return &t.sums.weights
}

// sums are the weights of a topology.
type sums struct {
	once    sync.Once
	weights [additives]graph.Weights
}

// problem is the request for the graph, and what its bounds are in. The bound on
// what the objective makes least is one on the cost.
func (v *view) problem(t *Topology, r Request) (p graph.Problem, bounded []additive) {
	weights, objective := t.adding(), r.Objective.adds()
	p.Cost, p.Width, p.Widest = weights[objective], v.width, r.Objective == ObjectiveWidest
	for m := range additives {
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

// why says what keeps two places apart.
func (v *view) why() string {
	if a := v.among(); a != "" {
		return "not connected" + a
	}
	return "not connected"
}

// among counts the links that were left out.
func (v *view) among() string {
	var parts []string
	for why, n := range v.outside {
		if n > 0 && out(why) != in {
			parts = append(parts, fmt.Sprintf("%d %s", n, outWords[why]))
		}
	}
	if parts == nil {
		return ""
	}
	return " (left out: links " + strings.Join(parts, ", ") + ")"
}

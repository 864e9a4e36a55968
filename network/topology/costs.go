package topology

import (
	"fmt"
	"math"
	"strings"
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
	case r.needsWidth() && r.Available == nil && l.Capacity == 0:
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

// costs is a network as one request sees it. It is reused between requests.
type costs struct {
	width   graph.Weights
	sums    [additives]graph.Weights
	outside [reasons]int // how many links are out, by reason
}

// fill judges all links. Those that are out have a negative number of hops, which
// every search looks at.
func (c *costs) fill(t *Topology, r Request) {
	c.outside = [reasons]int{}
	c.width = c.width[:0]
	for m := range c.sums {
		c.sums[m] = c.sums[m][:0]
	}
	for _, l := range t.Links {
		why, free := r.judge(l)
		c.outside[why]++
		c.width = append(c.width, float64(free))
		for m := range additives {
			w := -1.0
			if why == in {
				w = m.weight(l)
			}
			c.sums[m] = append(c.sums[m], w)
		}
	}
}

// problem is the request for the graph, and the metrics that its bounds are in. The
// bound on what the objective makes least is one on the cost.
func (c *costs) problem(r Request) (p graph.Problem, bounded []additive) {
	objective := r.Objective.adds()
	p.Cost = c.sums[objective]
	if r.Objective == ObjectiveWidest {
		p.Widest, p.Width = true, c.width
	}
	for m := range additives {
		most := m.bound(r)
		switch {
		case most == 0:
		case m == objective:
			p.MaxCost = most
		default:
			p.Bounds = append(p.Bounds, graph.Bound{Weights: c.sums[m], Max: most})
			bounded = append(bounded, m)
		}
	}
	return p, bounded
}

// why says what keeps two places apart.
func (c *costs) why() string {
	if a := c.among(); a != "" {
		return "not connected" + a
	}
	return "not connected"
}

// among counts the links that were left out.
func (c *costs) among() string {
	var parts []string
	for why, n := range c.outside {
		if n > 0 && out(why) != in {
			parts = append(parts, fmt.Sprintf("%d %s", n, outWords[why]))
		}
	}
	if parts == nil {
		return ""
	}
	return " (left out: links " + strings.Join(parts, ", ") + ")"
}

package topology

import (
	"fmt"
	"math"
	"slices"
)

// Edge describes the part of one link in a path search.
type Edge struct {
	Link Link
	// Available is the capacity that the link has left for this request, in bits per second.
	Available uint64
	// OnPath reports whether the link is part of the path that was found.
	OnPath bool
	// Out is the reason why the link takes no part or is of no use. It is empty for a link that
	// could be part of the path.
	Out string
}

// Explanation holds the result of a path search, and the part that each link had in it.
type Explanation struct {
	// Answer is the result of Find, and Err the reason why there is no path.
	Answer Answer
	Err    error
	Edges  []Edge // in the order of the topology's links
}

// Explain searches as Find does, and returns for every link what the search knew about it and
// why the link was left out. The error is about an invalid request.
func (t *Topology) Explain(from, to PortRef, r Request) (Explanation, error) {
	if err := t.validate(from, to, r); err != nil {
		return Explanation{}, err
	}
	var e Explanation
	e.Answer, e.Err = t.Find(from, to, r)
	for _, l := range t.Links {
		why, free := r.exclusionOf(l)
		e.Edges = append(e.Edges, Edge{Link: l, Available: free, Out: r.describe(why, l, free)})
	}
	for m := range numSums {
		t.markTooFar(from, to, m, r, e.Edges)
	}
	for _, h := range e.Answer.Path.Hops {
		if i, ok := t.byFrom[PortRef{Switch: h.Switch, Port: h.Out}]; ok {
			e.Edges[i].OnPath = true
		}
	}
	return e, nil
}

// describe returns the reason for an exclusion in words, with its figures.
func (r Request) describe(why exclusion, l Link, free uint64) string {
	switch why {
	case excluded:
		return "excluded: " + r.Exclude(l)
	case narrow:
		return fmt.Sprintf("%d bit/s available, %d asked for", free, r.MinBandwidth)
	case unknownCapacity:
		return "capacity not known"
	case notMeasured:
		return "delay not measured"
	case losesAll:
		return "loses everything"
	}
	return ""
}

// markTooFar marks the links over which every path exceeds the bound on a sum, and those over
// which there is no path.
func (t *Topology) markTooFar(from, to PortRef, m metricSum, r Request, edges []Edge) {
	most := m.bound(r)
	if most == 0 && m != hops {
		return
	}
	w := slices.Clone(t.sumWeights()[m])
	for i := range edges {
		if edges[i].Out != "" {
			w[i] = -1
		}
	}
	least := t.g.LeastThrough(t.index[from.Switch], t.index[to.Switch], w)
	for i := range edges {
		switch sum := least[i]; {
		case edges[i].Out != "":
		case math.IsInf(sum, 1):
			edges[i].Out = "no path between the two places uses it"
		case most > 0 && sum > most:
			edges[i].Out = fmt.Sprintf("every path over it has a %v of at least %s", m, m.format(sum))
		}
	}
}

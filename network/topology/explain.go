package topology

import (
	"fmt"
	"math"
	"slices"
)

// Edge is a link as a path search saw it.
type Edge struct {
	Link Link
	// Available is what the link has for this request, in bits per second.
	Available uint64
	// OnPath tells the links of the path that was found.
	OnPath bool
	// Out is why the link takes no part or is of no use, "" for one that could have
	// been part of the path.
	Out string
}

// Explanation is the network as the search for one request saw it.
type Explanation struct {
	// Answer is what Find says; Err why there is no path.
	Answer Answer
	Err    error
	Edges  []Edge // in the order of the topology's links
}

// Explain searches as Find does, and tells of every link what the search knew about
// it and why it was out. The error is that of a request that makes no sense.
func (t *Topology) Explain(from, to PortRef, r Request) (Explanation, error) {
	if err := t.refuse(from, to, r); err != nil {
		return Explanation{}, err
	}
	var e Explanation
	e.Answer, e.Err = t.Find(from, to, r)
	for _, l := range t.Links {
		why, free := r.judge(l)
		e.Edges = append(e.Edges, Edge{Link: l, Available: free, Out: r.sentence(why, l, free)})
	}
	for m := range additives {
		t.tooFar(from, to, m, r, e.Edges)
	}
	for _, h := range e.Answer.Path.Hops {
		if i, ok := t.byFrom[PortRef{Switch: h.Switch, Port: h.Out}]; ok {
			e.Edges[i].OnPath = true
		}
	}
	return e, nil
}

// sentence is a verdict with its numbers.
func (r Request) sentence(why out, l Link, free uint64) string {
	switch why {
	case excluded:
		return "excluded: " + r.Exclude(l)
	case narrow:
		return fmt.Sprintf("%d bit/s available, %d asked for", free, r.MinBandwidth)
	case unknownCapacity:
		return "capacity not known"
	case notMeasured:
		return "delay not measured"
	case dead:
		return "loses everything"
	}
	return ""
}

// tooFar marks the links over which every way exceeds the bound on a sum, or over
// which there is none.
func (t *Topology) tooFar(from, to PortRef, m additive, r Request, edges []Edge) {
	most := m.bound(r)
	if most == 0 && m != hops {
		return
	}
	w := slices.Clone(t.adding()[m])
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
			edges[i].Out = "no way from one place to the other leads over it"
		case most > 0 && sum > most:
			edges[i].Out = fmt.Sprintf("every way over it has a %v of at least %s", m, m.print(sum))
		}
	}
}

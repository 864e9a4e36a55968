package topology

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/network/graph"
	"github.com/sluice-net/sluice/openflow"
)

// Topology is an immutable snapshot of switches and links. It is safe for concurrent use.
type Topology struct {
	// Version grows with every snapshot of one controller run.
	Version uint64
	// Switches are the connected switches, ascending.
	Switches []openflow.DatapathID
	// Links are the directed links, ordered by From.
	Links []Link

	index         map[openflow.DatapathID]int
	firstLink     []int   // the links that leave switch i are firstLink[i] to firstLink[i+1]
	heads         []int32 // the switches to which the links lead
	byFrom        map[PortRef]int
	inner         map[PortRef]struct{}
	g             *graph.Graph
	hops          graph.Weights
	sums          sumWeights
	views         sync.Pool
	tree          tree
	shortestTrees []atomic.Pointer[graph.Tree]
	hopsToward    []atomic.Pointer[[]float64] // the numbers of links from all switches to one
}

// New returns a snapshot of the network. Links with an end that is not among the switches are
// left out.
func New(version uint64, switches []openflow.DatapathID, links []Link) *Topology {
	t := &Topology{
		Version:  version,
		Switches: slices.Compact(slices.Sorted(slices.Values(switches))),
		index:    make(map[openflow.DatapathID]int, len(switches)),
		byFrom:   make(map[PortRef]int, len(links)),
		inner:    make(map[PortRef]struct{}, 2*len(links)),
	}
	for i, s := range t.Switches {
		t.index[s] = i
	}
	for _, l := range links {
		if _, ok := t.index[l.From.Switch]; !ok {
			continue
		}
		if _, ok := t.index[l.To.Switch]; ok {
			t.Links = append(t.Links, l)
		}
	}
	slices.SortFunc(t.Links, func(a, b Link) int { return a.From.Compare(b.From) })
	arcs := make([]graph.Arc, len(t.Links))
	t.hops = make(graph.Weights, len(t.Links))
	t.heads = make([]int32, len(t.Links))
	t.shortestTrees = make([]atomic.Pointer[graph.Tree], len(t.Switches))
	t.hopsToward = make([]atomic.Pointer[[]float64], len(t.Switches))
	t.firstLink = make([]int, len(t.Switches)+1)
	for i, l := range t.Links {
		t.firstLink[t.index[l.From.Switch]+1] = i + 1
		t.byFrom[l.From] = i
		t.inner[l.From], t.inner[l.To] = struct{}{}, struct{}{}
		arcs[i] = graph.Arc{From: t.index[l.From.Switch], To: t.index[l.To.Switch]}
		t.hops[i], t.heads[i] = 1, int32(arcs[i].To)
	}
	for i := range t.Switches { // a switch without links
		t.firstLink[i+1] = max(t.firstLink[i+1], t.firstLink[i])
	}
	t.views.New = func() any { return new(searchView) }
	t.g, _ = graph.New(len(t.Switches), arcs)
	return t
}

// Has reports whether the switch is part of the snapshot.
func (t *Topology) Has(s openflow.DatapathID) bool {
	_, ok := t.index[s]
	return ok
}

// Index returns the index of a switch in Switches.
func (t *Topology) Index(s openflow.DatapathID) (int, bool) {
	i, ok := t.index[s]
	return i, ok
}

// LinksFrom returns the links that leave a switch, by port. They are part of Links and must not
// be modified.
func (t *Topology) LinksFrom(s openflow.DatapathID) []Link {
	i, ok := t.index[s]
	if !ok {
		return nil
	}
	return t.Links[t.firstLink[i]:t.firstLink[i+1]:t.firstLink[i+1]]
}

// LinkFrom returns the link that leaves by a port.
func (t *Topology) LinkFrom(r PortRef) (Link, bool) {
	i, ok := t.byFrom[r]
	if !ok {
		return Link{}, false
	}
	return t.Links[i], true
}

// IsEdge reports whether no link between switches uses the port, so that hosts may be behind it.
func (t *Topology) IsEdge(r PortRef) bool {
	_, inner := t.inner[r]
	return !inner
}

// Path returns the path that enters at from, leaves at to, and is cheapest by the metric.
func (t *Topology) Path(from, to PortRef, m Metric) (Path, bool) {
	a, b, ok := t.ends(from, to)
	if !ok {
		return Path{}, false
	}
	if a == b {
		return Path{Hops: []Hop{{Switch: from.Switch, In: from.Port, Out: to.Port}}}, true
	}
	p, ok := t.g.ShortestPath(a, b, t.weights(m))
	if !ok {
		return Path{}, false
	}
	return t.path(p, from, to), true
}

// KPaths returns up to k loop-free paths, cheapest first.
func (t *Topology) KPaths(from, to PortRef, k int, m Metric) []Path {
	a, b, ok := t.ends(from, to)
	if !ok {
		return nil
	}
	return t.paths(t.g.KShortestPaths(a, b, k, t.weights(m)), from, to)
}

// DisjointPaths returns up to k paths that share no link, with the smallest total cost.
func (t *Topology) DisjointPaths(from, to PortRef, k int, m Metric) []Path {
	a, b, ok := t.ends(from, to)
	if !ok {
		return nil
	}
	return t.paths(t.g.DisjointPaths(a, b, k, t.weights(m), graph.EdgeDisjoint), from, to)
}

func (t *Topology) ends(from, to PortRef) (a, b int, ok bool) {
	a, okA := t.index[from.Switch]
	b, okB := t.index[to.Switch]
	return a, b, okA && okB
}

// unknownLatency is the latency assumed for a link that has not been measured yet: long enough
// that a measured link is preferred, short enough that the link is used if there is no other.
const unknownLatency = time.Second

func (t *Topology) weights(m Metric) graph.Weights {
	if m == MetricHops {
		return t.hops
	}
	w := make(graph.Weights, len(t.Links))
	for i, l := range t.Links {
		w[i] = cost(l, m)
	}
	return w
}

func cost(l Link, m Metric) float64 {
	switch m {
	case MetricLatency:
		if l.Latency <= 0 {
			return unknownLatency.Seconds()
		}
		return l.Latency.Seconds()
	case MetricUtilisation:
		if l.Capacity == 0 {
			return 1
		}
		free := 1 - min(float64(l.Used)/float64(l.Capacity), 0.999)
		return 1 / free
	case MetricCapacity:
		if l.Capacity == 0 {
			return 1
		}
		return 1e6 / float64(l.Capacity)
	default:
		return 1
	}
}

func (t *Topology) paths(gs []graph.Path, from, to PortRef) []Path {
	out := make([]Path, len(gs))
	for i, g := range gs {
		out[i] = t.path(g, from, to)
	}
	return out
}

func (t *Topology) path(g graph.Path, from, to PortRef) Path {
	p := Path{Hops: make([]Hop, 0, len(g.Arcs)+1), Cost: g.Cost}
	in := from
	for _, arc := range g.Arcs {
		l := t.Links[arc]
		p.Hops = append(p.Hops, Hop{Switch: in.Switch, In: in.Port, Out: l.From.Port})
		p.Latency += l.Latency
		in = l.To
	}
	p.Hops = append(p.Hops, Hop{Switch: in.Switch, In: in.Port, Out: to.Port})
	return p
}

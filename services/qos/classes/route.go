package classes

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Route is the route of one flow of a class.
type Route struct {
	// Flow is the index of the flow in the class.
	Flow int `json:"flow"`
	// Hops holds the hops of a path. If Tree is true, the flow's source is open, and Hops holds one
	// hop for each switch from which the destination can be reached.
	Hops []topology.Hop `json:"hops"`
	Tree bool           `json:"tree,omitempty"`
	// Latency is the sum of the latencies of the route's links without a queue; for a tree, that of
	// its slowest branch.
	Latency time.Duration `json:"latency"`
	// Unmeasured is a link of the route whose latency is not known; zero if there is none.
	Unmeasured topology.PortRef `json:"-"`
}

// Refusal is the reason why a class is not accepted. Field is the field of the request that cannot
// be met and Value its value. Why says where the request fails, with figures.
type Refusal struct {
	Field string
	Value any
	Why   string
}

func (r *Refusal) Error() string { return r.Why }

// refused returns the Refusal of a class because of one of its flows.
func refused(flow int, value any, why string, args ...any) *Refusal {
	return &Refusal{fmt.Sprintf("flows[%d]", flow), value, fmt.Sprintf(why, args...)}
}

// endpoints holds where a flow begins and ends.
type endpoints struct {
	src, dst  topology.Host
	anySource bool // whether the flow may begin anywhere
	// path is the path on which another service forwards the flow; nil if none does. If it is set,
	// no path has to be chosen.
	path []topology.Hop
	// virtual reports whether one end is a virtual address. The service that it belongs to forwards
	// the packets.
	virtual bool
}

// findRoute returns the route of a flow: the one with the fewest hops that meets the latency and
// for whose links lacks returns "". If there is none, it returns a route that meets the latency
// although its links lack something, and false for fits. If no route meets the latency, the error
// says how long the fastest one takes.
func findRoute(t *topology.Topology, c *Class, flow int, e endpoints, lacks func(topology.Link) string) (r Route, fits bool, err error) {
	switch {
	case e.path != nil:
		r = newRoute(t, flow, e.path)
		return r, false, r.checkLatency(c)
	case e.anySource:
		r = tree(t, flow, e.dst)
		return r, false, r.checkLatency(c)
	}
	for i, request := range []topology.Request{{MaxDelay: c.Latency, Exclude: lacks}, {MaxDelay: c.Latency}, {Objective: topology.ObjectiveDelay}} {
		if answer, err := t.Find(e.src.At, e.dst.At, request); err == nil {
			r = newRoute(t, flow, answer.Path.Hops)
			return r, i == 0, r.checkLatency(c)
		}
	}
	return r, false, refused(flow, e.dst.At.String(), "there is no path from %v to %v", e.src.At, e.dst.At)
}

// tree returns the route from every switch to the host dst.
func tree(t *topology.Topology, flow int, dst topology.Host) Route {
	r := Route{Flow: flow, Tree: true}
	for _, s := range t.Switches {
		p, ok := t.FanPath(topology.PortRef{Switch: dst.At.Switch}, topology.PortRef{Switch: s})
		if !ok {
			continue
		}
		back := kit.Reversed(p.Hops)
		back[len(back)-1].Out = dst.At.Port
		way := newRoute(t, flow, back)
		r.Hops = append(r.Hops, topology.Hop{Switch: s, Out: back[0].Out})
		r.Latency = max(r.Latency, way.Latency)
		if r.Unmeasured.IsZero() {
			r.Unmeasured = way.Unmeasured
		}
	}
	return r
}

// newRoute returns the route along the given hops, with the latency of its links.
func newRoute(t *topology.Topology, flow int, hops []topology.Hop) Route {
	r := Route{Flow: flow, Hops: hops}
	for _, h := range hops[:len(hops)-1] {
		at := portRef(h.Switch, h.Out)
		l, ok := t.LinkFrom(at)
		if (!ok || l.Latency == 0) && r.Unmeasured.IsZero() {
			r.Unmeasured = at
		}
		r.Latency += l.Latency
	}
	return r
}

// isIntact reports whether every link of a route still exists.
func (r *Route) isIntact(t *topology.Topology, dst topology.PortRef) bool {
	if r.Tree {
		now := tree(t, r.Flow, topology.Host{At: dst})
		return slices.Equal(now.Hops, r.Hops)
	}
	for i, h := range r.Hops[:len(r.Hops)-1] {
		l, ok := t.LinkFrom(portRef(h.Switch, h.Out))
		if next := r.Hops[i+1]; !ok || l.To != portRef(next.Switch, next.In) {
			return false
		}
	}
	last := r.Hops[len(r.Hops)-1]
	return t.Has(last.Switch) && portRef(last.Switch, last.Out) == dst
}

// checkLatency returns an error that says why a route does not meet the latency that the class
// requires; nil if it does.
func (r *Route) checkLatency(c *Class) error {
	var why string
	switch {
	case c.Latency == 0:
		return nil
	case !r.Unmeasured.IsZero():
		why = fmt.Sprintf("the latency of the link from %v is not measured yet", r.Unmeasured)
	case r.Latency > c.Latency:
		why = fmt.Sprintf("the links of the fastest path take %v, required are %v", r.Latency, c.Latency)
	default:
		return nil
	}
	return &Refusal{"latency", c.Latency.String(), fmt.Sprintf("flows[%d]: %s", r.Flow, why)}
}

// portsOf returns the ports by which the routes leave switches, each once, in ascending order.
func portsOf(routes []Route) []topology.PortRef {
	var out []topology.PortRef
	for _, r := range routes {
		for _, h := range r.Hops {
			out = append(out, portRef(h.Switch, h.Out))
		}
	}
	slices.SortFunc(out, topology.PortRef.Compare)
	return slices.Compact(out)
}

// switchesOf returns the switches that the routes pass, in ascending order.
func switchesOf(routes []Route) []openflow.DatapathID {
	var out []openflow.DatapathID
	for _, p := range portsOf(routes) {
		out = append(out, p.Switch)
	}
	return slices.Compact(out)
}

package latency

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
)

// Route is the way of one flow of a class.
type Route struct {
	// Flow is its index in the class.
	Flow int `json:"flow"`
	// Hops are those of a path, or, if Tree is true, one for each switch from which
	// the destination can be reached: the flow's source is then open.
	Hops []topology.Hop `json:"hops"`
	Tree bool           `json:"tree,omitempty"`
	// Latency is that of its links without a queue before them, the longest branch's for
	// a tree.
	Latency time.Duration `json:"latency"`
	// Unmeasured is a link of the way whose latency is not known; zero if there is
	// none.
	Unmeasured topology.PortRef `json:"-"`
}

// Refusal says why a class is not accepted: the field that asks for too much, and
// where it fails with which number.
type Refusal struct {
	Field string
	Value any
	Why   string
}

func (r *Refusal) Error() string { return r.Why }

// refused says why a flow stands in the way of its class.
func refused(flow int, value any, why string, args ...any) *Refusal {
	return &Refusal{fmt.Sprintf("flows[%d]", flow), value, fmt.Sprintf(why, args...)}
}

// ends are where a flow begins and ends.
type ends struct {
	src, dst topology.Host
	open     bool // it begins anywhere
	// led is the way that somebody else leads it, so that there is nothing to choose.
	led []topology.Hop
	// virtual says that one of them is a virtual address: its service leads the packets.
	virtual bool
}

// way is the way of a flow: the one of fewest hops that keeps the latency and whose links
// lack nothing. If there is none, it is one whose links do, fits is false then; and if
// nothing keeps the latency, the error says what the fastest one takes.
func way(t *topology.Topology, c *Class, flow int, e ends, lacks func(topology.Link) string) (r Route, fits bool, err error) {
	switch {
	case e.led != nil:
		r = measured(t, flow, e.led)
		return r, false, r.keeps(c)
	case e.open:
		r = tree(t, flow, e.dst)
		return r, false, r.keeps(c)
	}
	for i, request := range []topology.Request{{MaxDelay: c.Latency, Exclude: lacks}, {MaxDelay: c.Latency}, {Objective: topology.ObjectiveDelay}} {
		if answer, err := t.Find(e.src.At, e.dst.At, request); err == nil {
			r = measured(t, flow, answer.Path.Hops)
			return r, i == 0, r.keeps(c)
		}
	}
	return r, false, refused(flow, e.dst.At.String(), "there is no path from %v to %v", e.src.At, e.dst.At)
}

// tree leads from every switch to a host.
func tree(t *topology.Topology, flow int, dst topology.Host) Route {
	r := Route{Flow: flow, Tree: true}
	for _, s := range t.Switches {
		p, ok := t.FanPath(topology.PortRef{Switch: dst.At.Switch}, topology.PortRef{Switch: s})
		if !ok {
			continue
		}
		back := reserve.Back(p.Hops)
		back[len(back)-1].Out = dst.At.Port
		way := measured(t, flow, back)
		r.Hops = append(r.Hops, topology.Hop{Switch: s, Out: back[0].Out})
		r.Latency = max(r.Latency, way.Latency)
		if r.Unmeasured.IsZero() {
			r.Unmeasured = way.Unmeasured
		}
	}
	return r
}

// measured is a path with the latency of its links.
func measured(t *topology.Topology, flow int, hops []topology.Hop) Route {
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

// stands reports whether every link of a route is still there.
func (r *Route) stands(t *topology.Topology, dst topology.PortRef) bool {
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

// keeps says why a route does not meet a required latency; nil if it does.
func (r *Route) keeps(c *Class) error {
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

// portsOf are the ports by which a class leaves switches, each once, ascending.
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

// switchesOf are the switches that a class passes, ascending.
func switchesOf(routes []Route) []openflow.DatapathID {
	var out []openflow.DatapathID
	for _, p := range portsOf(routes) {
		out = append(out, p.Switch)
	}
	return slices.Compact(out)
}

package latency

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
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

// ends are where a flow begins and ends.
type ends struct {
	src, dst topology.Host
	open     bool // it begins anywhere
	// led is the way that somebody else leads it, so that there is nothing to choose.
	led []topology.Hop
}

// way is the way of a flow: the one of fewest hops that keeps the latency and whose links
// lack nothing. If there is none, it is one whose links do, fits is false then; and if
// nothing keeps the latency, the error says what the fastest one takes.
func way(t *topology.Topology, c *Class, flow int, e ends, lacks func(topology.Link) string) (r Route, fits bool, err error) {
	if e.open || e.led != nil {
		r := Route{Flow: flow, Hops: e.led}
		if e.led == nil {
			r = tree(t, flow, e.dst)
		} else {
			r.measure(t)
		}
		if why := r.keeps(c); why != nil {
			return r, false, why
		}
		return r, false, nil
	}
	for i, request := range []topology.Request{{MaxDelay: c.Latency, Exclude: lacks}, {MaxDelay: c.Latency}, {Objective: topology.ObjectiveDelay}} {
		answer, err := t.Find(e.src.At, e.dst.At, request)
		if err != nil {
			continue
		}
		r := Route{Flow: flow, Hops: answer.Path.Hops}
		r.measure(t)
		if why := r.keeps(c); why != nil {
			return r, false, why
		}
		return r, i == 0, nil
	}
	return Route{}, false, &Refusal{Field: fmt.Sprintf("flows[%d]", flow), Value: e.dst.At.String(), Why: fmt.Sprintf("there is no path from %v to %v", e.src.At, e.dst.At)}
}

// tree leads from every switch to a host.
func tree(t *topology.Topology, flow int, dst topology.Host) Route {
	r := Route{Flow: flow, Tree: true}
	for _, s := range t.Switches {
		p, ok := t.FanPath(topology.PortRef{Switch: dst.At.Switch}, topology.PortRef{Switch: s})
		if !ok {
			continue
		}
		hop := topology.Hop{Switch: s, Out: dst.At.Port}
		way := Route{Hops: backwards(p.Hops, dst.At.Port)}
		way.measure(t)
		hop.Out = way.Hops[0].Out
		r.Hops = append(r.Hops, hop)
		r.Latency = max(r.Latency, way.Latency)
		if r.Unmeasured.IsZero() {
			r.Unmeasured = way.Unmeasured
		}
	}
	return r
}

// backwards is the same path the other way, to a port of what was its first switch.
func backwards(hops []topology.Hop, out uint32) []topology.Hop {
	back := slices.Clone(hops)
	slices.Reverse(back)
	for i := range back {
		back[i].In, back[i].Out = back[i].Out, back[i].In
	}
	back[0].In, back[len(back)-1].Out = 0, out
	return back
}

// measure adds up the latency of a path's links.
func (r *Route) measure(t *topology.Topology) {
	r.Latency, r.Unmeasured = 0, topology.PortRef{}
	for _, h := range r.Hops[:len(r.Hops)-1] {
		at := topology.PortRef{Switch: h.Switch, Port: h.Out}
		l, ok := t.LinkFrom(at)
		if (!ok || l.Latency == 0) && r.Unmeasured.IsZero() {
			r.Unmeasured = at
		}
		r.Latency += l.Latency
	}
}

// stands reports whether every link of a route is still there.
func (r *Route) stands(t *topology.Topology, dst topology.PortRef) bool {
	if r.Tree {
		now := tree(t, r.Flow, topology.Host{At: dst})
		return slices.Equal(now.Hops, r.Hops)
	}
	for i, h := range r.Hops[:len(r.Hops)-1] {
		l, ok := t.LinkFrom(topology.PortRef{Switch: h.Switch, Port: h.Out})
		if !ok || l.To != (topology.PortRef{Switch: r.Hops[i+1].Switch, Port: r.Hops[i+1].In}) {
			return false
		}
	}
	last := r.Hops[len(r.Hops)-1]
	return t.Has(last.Switch) && last.Switch == dst.Switch && last.Out == dst.Port
}

// keeps says why a route does not meet a required latency; nil if it does.
func (r *Route) keeps(c *Class) *Refusal {
	switch {
	case c.Latency == 0:
		return nil
	case !r.Unmeasured.IsZero():
		return &Refusal{Field: "latency", Value: c.Latency.String(), Why: fmt.Sprintf("flows[%d]: the latency of the link from %v is not measured yet", r.Flow, r.Unmeasured)}
	case r.Latency > c.Latency:
		return &Refusal{Field: "latency", Value: c.Latency.String(), Why: fmt.Sprintf("flows[%d]: the links of the fastest path take %v, required are %v", r.Flow, r.Latency, c.Latency)}
	}
	return nil
}

// portsOf are the ports by which a class leaves switches, each once, ascending.
func portsOf(routes []Route) []topology.PortRef {
	var out []topology.PortRef
	for _, r := range routes {
		for _, h := range r.Hops {
			out = append(out, topology.PortRef{Switch: h.Switch, Port: h.Out})
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

// locateAll finds where the flows of a class begin and end.
func (s *Service) locateAll(ctx context.Context, c *Class) ([]ends, error) {
	s.baseline.note(s.net.Topology(), time.Now())
	all := make([]ends, len(c.Flows))
	for i, f := range c.Flows {
		if hops, moves := s.movingWay(&f); moves {
			all[i].led = hops
			continue
		}
		var err error
		if all[i].dst, err = s.locate(ctx, f.Dst); err != nil {
			return nil, &Refusal{Field: fmt.Sprintf("flows[%d]", i), Value: f.Dst.String(), Why: fmt.Sprintf("the destination %v is not found in the network: %v", f.Dst, err)}
		}
		if all[i].open = !f.Src.IsValid(); all[i].open {
			continue
		}
		if all[i].src, err = s.locate(ctx, f.Src); err != nil {
			return nil, &Refusal{Field: fmt.Sprintf("flows[%d]", i), Value: f.Src.String(), Why: fmt.Sprintf("the source %v is not found in the network: %v", f.Src, err)}
		}
	}
	return all, nil
}

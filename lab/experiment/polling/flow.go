package polling

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/match"
)

const (
	// largeShare is the percentage of its host's link from which on a connection is large.
	largeShare = 10
	// maxAtOnce bounds the switches that are read, and the connections that are placed, at the same
	// time.
	maxAtOnce = 64
)

// flow is a connection whose first packet has reached the controller.
type flow struct {
	key      string // its key in the ledger
	header   match.Header
	from, to network.PortRef

	// The goroutine that reads counters owns counter and path once the connection has entered.
	counter flowpath.Counter
	// path is the path of a large connection.
	path []network.Hop
}

func newFlow(h match.Header, from, to network.PortRef) *flow {
	return &flow{key: "flow/" + h.String(), header: h, from: from, to: to}
}

// enter installs a connection's rule, and sends the SYN that waits for it.
func (c *Controller) enter(ctx context.Context, f *flow, held *network.Held) {
	path, _, ok := c.net.Topology().Widest(f.from, f.to, 0, f.hash)
	if ok {
		if err := c.rules.Apply(ctx, f.key, f.rules(path.Hops[:1]), network.ApplyOptions{}); err != nil {
			c.Log.Warn("a connection gets no rule", "connection", f.header, "error", err)
		}
	}
	if err := held.Release(); err != nil {
		c.Log.Warn("releasing a SYN", "connection", f.header, "error", err)
	}
}

// hash returns a width for a link that depends on a hash of the connection and the link. If the
// widest of the shortest paths is chosen by it, connections spread over these paths.
func (f *flow) hash(l network.Link) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(f.key + l.From.String())) // never fails
	return 1 + uint64(h.Sum32())
}

// rules returns the rules that route a connection along a path, or out of the switch where it
// enters.
func (f *flow) rules(hops []network.Hop) (p network.Program) {
	for i, hop := range hops {
		r := network.Rule{
			Switch: hop.Switch, Stage: network.StageRoute, Offset: rule.RouteSubflow, Match: f.header.Match(hop.In),
			Actions: []openflow.Action{openflow.Output(hop.Output())},
		}
		if i == 0 {
			r.Idle, r.NotifyRemoved = idle, true
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

// read reads the counters of all switches with hosts, and places the connections that are large.
func (c *Controller) read(ctx context.Context) {
	tasks.Each(c.net.EdgeSwitches(), maxAtOnce, func(d openflow.DatapathID) {
		if err := c.rules.ReadCounters(ctx, d); err != nil {
			c.Log.Debug("reading counters", "switch", d, "error", err)
		}
	})
	flows := c.entered()
	crowd := map[network.PortRef]uint64{} // number of large connections by the port from which they leave
	for _, f := range flows {
		f.leaves(func(at network.PortRef) { crowd[at]++ })
	}
	for _, f := range flows {
		if f.path != nil || !c.large(f) {
			continue
		}
		path, _, ok := c.net.Topology().Widest(f.from, f.to, 0, func(l network.Link) uint64 { return l.Capacity / (1 + crowd[l.From]) })
		if !ok {
			continue
		}
		if err := c.rules.Apply(ctx, f.key, f.rules(path.Hops), network.ApplyOptions{Waves: kit.Waves(path.Hops)}); err != nil {
			c.Log.Warn("a large connection is not placed", "connection", f.header, "error", err)
			continue
		}
		f.path = path.Hops
		f.leaves(func(at network.PortRef) { crowd[at]++ })
	}
}

// leaves calls tell with the ports by which a large connection leaves switches for others.
func (f *flow) leaves(tell func(network.PortRef)) {
	for i, hop := range f.path {
		if i < len(f.path)-1 {
			tell(network.PortRef{Switch: hop.Switch, Port: hop.Out})
		}
	}
}

// entered returns the present connections in a fixed order.
func (c *Controller) entered() []*flow {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*flow, 0, len(c.flows))
	for _, f := range c.flows {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *flow) int { return cmp.Compare(a.key, b.key) })
	return all
}

// large reads what a connection has carried, and reports whether it is large.
func (c *Controller) large(f *flow) bool {
	for _, r := range c.rules.Rules(f.key) {
		if r.Switch == f.from.Switch && !r.CountersAt.IsZero() {
			rate, known := f.counter.Read(r.Bytes, r.CountersAt)
			return known && rate >= c.net.Capacity(f.from)/100*largeShare
		}
	}
	return false
}

package network

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// ReadCounters asks a switch what the owner's rules there have counted: Rules then
// tells it.
func (o *Owner) ReadCounters(ctx context.Context, d openflow.DatapathID) error {
	s, err := o.in.switches.mustBeUp(d)
	if err != nil {
		return err
	}
	mine := openflow.AllFlows()
	mine.Cookie, mine.CookieMask = uint64(rule.MakeCookie(o.led.Hash, 0, 0)), rule.OwnerMask
	asked := time.Now()
	flows, done, err := askFlows(ctx, s.ch, mine)
	if err != nil {
		return err
	}
	defer done()
	at := asked.Add(time.Since(asked) / 2)
	for f := range flows {
		r := reported(f)
		o.in.ledger.Count(d, &r, at)
	}
	return nil
}

// QueueStats reads the counters of all queues of all ports.
func (s *Switch) QueueStats(ctx context.Context) ([]openflow.QueueStats, error) {
	queues, done, err := ask[openflow.QueueStatsReply](ctx, s.ch, &openflow.QueueStatsRequest{Port: openflow.PortAny, Queue: openflow.QueueAll})
	if err != nil {
		return nil, err
	}
	defer done()
	var out []openflow.QueueStats
	for q := range queues {
		out = append(out, *q)
	}
	return out, nil
}

// GroupStats asks a switch what the owner's groups there have counted, and their buckets, in
// their order. A group that is modified may begin to count anew.
func (o *Owner) GroupStats(ctx context.Context, d openflow.DatapathID) ([]openflow.GroupStats, error) {
	s, err := o.in.switches.mustBeUp(d)
	if err != nil {
		return nil, err
	}
	groups, done, err := ask[openflow.GroupStatsReply](ctx, s.ch, &openflow.GroupStatsRequest{Group: openflow.GroupAll})
	if err != nil {
		return nil, err
	}
	defer done()
	var out []openflow.GroupStats
	for g := range groups {
		if rule.GroupOf(g.Group, o.led.Hash) {
			out = append(out, *g)
		}
	}
	return out, nil
}

// Capacity is the speed of what leaves by a port, in bits per second: that of the
// configuration, or the port's own. It is zero while unknown.
func (n *Network) Capacity(at PortRef) uint64 {
	if c, ok := n.cfg.Capacities[at]; ok {
		return c
	}
	if s, ok := n.Switch(at.Switch); ok {
		p, _ := s.Port(at.Port)
		return uint64(p.CurrSpeed) * 1000
	}
	return 0
}

package network

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// ReadCounters reads the counters of the owner's rules on a switch. Rules then returns them.
func (o *Owner) ReadCounters(ctx context.Context, d openflow.DatapathID) error {
	s, err := o.installer.switches.mustBeUp(d)
	if err != nil {
		return err
	}
	mine := openflow.AllFlows()
	mine.Cookie, mine.CookieMask = uint64(rule.MakeCookie(o.ledgerOwner.Hash, 0, 0)), rule.OwnerMask
	asked := time.Now()
	flows, done, err := askFlows(ctx, s.ch, mine)
	if err != nil {
		return err
	}
	defer done()
	at := asked.Add(time.Since(asked) / 2)
	for f := range flows {
		r := toReported(f)
		o.installer.ledger.Count(d, &r, at)
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

// GroupStats reads the counters of the owner's groups on a switch, and those of their buckets in
// order. A switch may reset the counters of a group that is modified.
func (o *Owner) GroupStats(ctx context.Context, d openflow.DatapathID) ([]openflow.GroupStats, error) {
	s, err := o.installer.switches.mustBeUp(d)
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
		if rule.GroupOf(g.Group, o.ledgerOwner.Hash) {
			out = append(out, *g)
		}
	}
	return out, nil
}

// Rules returns every rule that is declared for the switch, by any owner, and the rules of default
// forwarding last.
func (s *Switch) Rules() []InstalledRule {
	out := s.n.ledger.SwitchRules(s.dpid)
	s.flows.Each(func(f rule.Flow, r ledger.FlowRule) {
		out = append(out, InstalledRule{
			Rule:   ledger.FlowToRule(s.dpid, f, r.Out, s.n.cfg.ForwardIdle),
			Number: s.layout.Number(rule.TableRoute),
			Cookie: r.Cookie, Owner: ownerForward, Name: flowName(f), Confirmed: r.Adopted,
		})
	})
	return out
}

// maxCountsAge is the age up to which CountedRules uses counters again, which bounds how often a
// switch lists its rules.
const maxCountsAge = time.Second

// ruleCounts holds the counters of a switch's rules as it last reported them.
type ruleCounts struct {
	reading  chan struct{} // holds a token while the counters are read or used
	at       time.Time
	byCookie map[rule.Cookie]ruleCount
}

type ruleCount struct{ packets, bytes uint64 }

// CountedRules returns what Rules returns, with counters that are at most a second old. If it
// returns an error, of the switch or of ctx, the counters are those of the last successful reading.
func (s *Switch) CountedRules(ctx context.Context) ([]InstalledRule, error) {
	c := &s.ruleCounts
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-ctx.Done():
		return s.Rules(), ctx.Err()
	}
	var err error
	if time.Since(c.at) > maxCountsAge {
		err = c.read(ctx, s.ch)
	}
	rules := s.Rules()
	for i := range rules {
		if counted, ok := c.byCookie[rules[i].Cookie]; ok && rules[i].CountersAt.Before(c.at) {
			rules[i].Packets, rules[i].Bytes, rules[i].CountersAt = counted.packets, counted.bytes, c.at
		}
	}
	return rules, err
}

// read reads the counters of all rules with a cookie of Sluice. The caller holds the token.
func (c *ruleCounts) read(ctx context.Context, ch *channel) error {
	asked := time.Now()
	flows, done, err := askFlows(ctx, ch, ourFlows())
	if err != nil {
		return err
	}
	defer done()
	c.byCookie = map[rule.Cookie]ruleCount{}
	for r := range flows {
		c.byCookie[rule.Cookie(r.Cookie)] = ruleCount{r.Packets, r.Bytes}
	}
	c.at = asked.Add(time.Since(asked) / 2)
	return nil
}

// flowName returns the name of a rule of default forwarding in lists and traces.
func flowName(f rule.Flow) string { return fmt.Sprintf("%v>%v", f.Src, f.Dst) }

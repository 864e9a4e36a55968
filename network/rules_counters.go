package network

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// ReadCounters asks a switch what the owner's rules there have counted: Rules then
// tells it.
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

// GroupStats asks a switch what the owner's groups there have counted, and their buckets, in
// their order. A group that is modified may begin to count anew.
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

// Rules lists every rule that is wanted on the switch, whoever wants it, the rules
// of default forwarding last.
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

// maxCountsAge is how old the counters may be that CountedRules tells: however often
// it is asked, a switch lists its rules no more often.
const maxCountsAge = time.Second

// ruleCounts are what a switch's rules have counted, as it last listed them.
type ruleCounts struct {
	reading  chan struct{} // holds a token while they are read or looked at
	at       time.Time
	byCookie map[rule.Cookie]ruleCount
}

type ruleCount struct{ packets, bytes uint64 }

// CountedRules is Rules with counters that the switch has told within the last
// second. With an error, which is the switch's or ctx's, the counters are those
// last read.
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

// read asks a switch what our rules have counted; whoever calls it holds the token.
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

// flowName is what a rule of default forwarding is called in lists and traces.
func flowName(f rule.Flow) string { return fmt.Sprintf("%v>%v", f.Src, f.Dst) }

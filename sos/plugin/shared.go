package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
)

// shared is a treatment of packets between two agents, which all their sessions to which
// it is promised share: its rules are by agents and DSCP, whatever the number of sessions.
type shared struct {
	Name string
	DSCP uint8
	// Back says that the packets go from Y to X.
	Back bool
}

// Share is a treatment with the queues in which its packets are to be.
type Share struct {
	shared
	Queues map[network.PortRef]uint32
}

func (s Share) same(o Share) bool { return s.shared == o.shared && maps.Equal(s.Queues, o.Queues) }

// share counts a session among those that share the treatments of its pair, as its
// layout has them now. The lock is held.
func (s *pairs) share(ss *session) {
	p := s.all[ss.pair]
	if p == nil {
		return
	}
	for _, x := range ss.shares {
		p.shares[x]--
	}
	ss.shares = nil
	back := ss.Layout.ServerSide.Agent.Less(ss.Layout.ClientSide.Agent)
	for _, x := range []shared{{ss.Layout.Up.Name, ss.Layout.Up.DSCP, back}, {ss.Layout.Down.Name, ss.Layout.Down.DSCP, !back}} {
		if x.DSCP != 0 {
			p.shares[x]++
			ss.shares = append(ss.shares, x)
		}
	}
}

// sorted are the treatments of the pair, in order. The service's lock is held.
func (p *pair) sorted() []shared {
	return slices.SortedFunc(maps.Keys(p.shares), func(a, b shared) int {
		if a.Back != b.Back {
			return map[bool]int{false: -1, true: 1}[a.Back]
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.DSCP, b.DSCP))
	})
}

// forgetShares forgets the treatments that no session has any more. The lock is held.
func (p *pair) forgetShares() {
	maps.DeleteFunc(p.shares, func(_ shared, n int) bool { return n == 0 })
}

// carried are the ports by which packets of a treatment leave switches between the agents.
func (s Steering) carried(x shared) (all []network.Carried) {
	for _, path := range s.Paths {
		if x.Back {
			path = service.Reversed(path)
		}
		for _, h := range path {
			all = append(all, network.Carried{Treatment: x.Name, At: outPort(h), Between: true})
		}
	}
	return all
}

// share has packets of treatments put into their queues on their ways.
func (s *Steering) share(all []shared, queue func(network.Carried) uint32) {
	for _, x := range all {
		if slices.ContainsFunc(s.Shares, func(o Share) bool { return o.DSCP == x.DSCP && o.Back == x.Back }) {
			continue // the DSCP has changed hands; who had it before gives it up now
		}
		queues := map[network.PortRef]uint32{}
		for _, c := range s.carried(x) {
			if q := queue(c); q != 0 {
				queues[c.At] = q
			}
		}
		s.Shares = append(s.Shares, Share{x, queues})
	}
}

// shared joins the rules of both directions, unless there is an error, and those for packets
// of treatments: they do what the others do, by a queue, and come first.
func (s Steering) shared(there, back []network.Rule, err error) ([]network.Rule, error) {
	if err != nil {
		return nil, err
	}
	all := append(there, back...)
	for i, r := range all {
		for _, x := range s.Shares {
			q := x.Queues[outOf(&r)]
			if q == 0 || x.Back != (i >= len(there)) {
				continue
			}
			of, err := s.narrow(r, x.DSCP)
			if err != nil {
				return nil, err
			}
			of.Offset = rule.RouteAgentsTreated
			of.Actions = append([]openflow.Action{openflow.SetQueue(q)}, r.Actions...)
			all = append(all, of)
		}
	}
	return all, nil
}

// narrow makes a rule one for packets of a DSCP.
func (s Steering) narrow(r network.Rule, dscp uint8) (network.Rule, error) {
	fields := []openflow.OXM{openflow.IPDSCP(dscp)}
	if _, known := r.Match.Get(openflow.FieldEthType); !known { // that of a tagged path
		fields = append(fields, openflow.EthType(etherType(s.X.Addr)))
	}
	m, err := r.Match.With(fields...)
	if err != nil {
		return r, fmt.Errorf("switch %v: packets between agents with DSCP %d: %w", r.Switch, dscp, err)
	}
	r.Match = m
	return r, nil
}

// carried are the ports by which packets of treatments leave switches between agents.
func (s *pairs) carried() (all []network.Carried) {
	s.mu.Lock()
	treated := map[*pair][]shared{}
	for _, p := range s.all {
		if p.users > 0 {
			treated[p] = p.sorted()
		}
	}
	s.mu.Unlock()
	for p, list := range treated {
		now := p.now()
		for _, x := range list {
			all = append(all, now.carried(x)...)
		}
	}
	return all
}

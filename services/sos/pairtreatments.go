package sos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// pairTreatment is a treatment of packets between two agents. All sessions of the pair to
// which it is promised share it: its rules match the agents and the DSCP, whatever the
// number of sessions.
type pairTreatment struct {
	Name string
	DSCP uint8
	// Back reports that the packets go from Y to X.
	Back bool
}

// TreatmentQueues is a treatment together with the queues of its packets.
type TreatmentQueues struct {
	pairTreatment
	Queues map[network.PortRef]uint32
}

func (s TreatmentQueues) equal(o TreatmentQueues) bool {
	return s.pairTreatment == o.pairTreatment && maps.Equal(s.Queues, o.Queues)
}

// countTreatments counts a session among those that share the treatments of its pair, as
// its layout has them now. The lock is held.
func (s *pairs) countTreatments(ss *session) {
	p := s.all[ss.pair]
	if p == nil {
		return
	}
	for _, x := range ss.treatments {
		p.treatments[x]--
	}
	ss.treatments = nil
	back := ss.Layout.ServerSide.Agent.Less(ss.Layout.ClientSide.Agent)
	for _, x := range []pairTreatment{{ss.Layout.Up.Name, ss.Layout.Up.DSCP, back}, {ss.Layout.Down.Name, ss.Layout.Down.DSCP, !back}} {
		if x.DSCP != 0 {
			p.treatments[x]++
			ss.treatments = append(ss.treatments, x)
		}
	}
}

// sortedTreatments returns the treatments of the pair in a fixed order. The service's lock
// is held.
func (p *pair) sortedTreatments() []pairTreatment {
	return slices.SortedFunc(maps.Keys(p.treatments), func(a, b pairTreatment) int {
		if a.Back != b.Back {
			return map[bool]int{false: -1, true: 1}[a.Back]
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.DSCP, b.DSCP))
	})
}

// dropUnusedTreatments forgets the treatments that no session has any more. The lock is
// held.
func (p *pair) dropUnusedTreatments() {
	maps.DeleteFunc(p.treatments, func(_ pairTreatment, n int) bool { return n == 0 })
}

// carriedPorts returns the ports by which packets of a treatment leave switches between the
// agents.
func (s Steering) carriedPorts(x pairTreatment) (all []network.Carried) {
	for _, path := range s.Paths {
		if x.Back {
			path = kit.Reversed(path)
		}
		for _, h := range path {
			all = append(all, network.Carried{Treatment: x.Name, At: outPort(h), Between: true})
		}
	}
	return all
}

// addTreatments adds treatments with the queues of their packets on the paths.
func (s *Steering) addTreatments(all []pairTreatment, queue func(network.Carried) uint32) {
	for _, x := range all {
		if slices.ContainsFunc(s.Treatments, func(o TreatmentQueues) bool { return o.DSCP == x.DSCP && o.Back == x.Back }) {
			continue // the DSCP belongs to another treatment now; its former one is being withdrawn
		}
		queues := map[network.PortRef]uint32{}
		for _, c := range s.carriedPorts(x) {
			if q := queue(c); q != 0 {
				queues[c.At] = q
			}
		}
		s.Treatments = append(s.Treatments, TreatmentQueues{x, queues})
	}
}

// withTreatments joins the rules of both directions and adds rules for packets with
// treatments. These do what the others do, through a queue, and have a higher priority. If
// err is not nil, it returns err.
func (s Steering) withTreatments(there, back []network.Rule, err error) ([]network.Rule, error) {
	if err != nil {
		return nil, err
	}
	all := append(there, back...)
	for i, r := range all {
		for _, x := range s.Treatments {
			q := x.Queues[outputPort(&r)]
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

// narrow returns a copy of a rule that matches only packets with a DSCP.
func (s Steering) narrow(r network.Rule, dscp uint8) (network.Rule, error) {
	fields := []openflow.OXM{openflow.IPDSCP(dscp)}
	if _, ok := r.Match.Get(openflow.FieldEthType); !ok { // a rule of a tagged path
		fields = append(fields, openflow.EthType(etherType(s.X.Addr)))
	}
	m, err := r.Match.With(fields...)
	if err != nil {
		return r, fmt.Errorf("switch %v: packets between agents with DSCP %d: %w", r.Switch, dscp, err)
	}
	r.Match = m
	return r, nil
}

// carriedPorts returns the ports by which packets with treatments leave switches between
// agents.
func (s *pairs) carriedPorts() (all []network.Carried) {
	s.mu.Lock()
	treated := map[*pair][]pairTreatment{}
	for _, p := range s.all {
		if p.users > 0 {
			treated[p] = p.sortedTreatments()
		}
	}
	s.mu.Unlock()
	for p, list := range treated {
		now := p.current()
		for _, x := range list {
			all = append(all, now.carriedPorts(x)...)
		}
	}
	return all
}

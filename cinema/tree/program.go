package tree

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	ethTypeIPv4 = 0x0800
	protoUDP    = 17
)

// Plan is what a channel is to be in the network.
type Plan struct {
	Tree Tree
	// Before is the way that it had, from the same root: what is under way on it still arrives.
	// The zero value is none.
	Before Tree
	// From and To are the source and the destination of its datagrams.
	From, To netip.AddrPort
	// Copies are those for its viewers, by switch. All the switches are of the tree.
	Copies map[openflow.DatapathID]*Groups
	// Rate is what the channel may send, in bit/s. Meter is the number of the meter that holds
	// it to that where it comes in; zero: the switch there has none.
	Rate  uint64
	Meter uint32
	// Queues are those in which it leaves by links, by the ports from which they lead; left
	// out: none.
	Queues map[network.PortRef]uint32
	// LinkMACs has it cross each link from a source address of its own.
	LinkMACs bool
	// Group makes the identifier of the n-th group at a switch.
	Group func(n int) uint32
}

// Program is the channel as rules and groups: at each switch one rule, for what comes in by
// the port of the tree, and the groups of the viewers behind it. Without viewers, and without
// Before, it is empty. Where only the former way leads, and nobody gets copies any more, the
// rule drops: what is still under way is dropped as the channel's, and not by a guard.
// The rules of the switches that are farthest from the root come first: written in this
// order, none leads to where there is none yet.
func (p *Plan) Program() (out network.Program) {
	forks, copies := p.Tree.beside(p.Before), map[openflow.DatapathID][]openflow.Action{}
	for _, at := range p.taken() {
		first, known := copies[at.Switch] // what is set for a link is not for viewers
		if !known {
			groups := p.groups(at.Switch)
			out.Groups = append(out.Groups, groups...)
			for _, g := range groups {
				first = append(first, openflow.GroupAction(g.ID))
			}
			copies[at.Switch] = slices.Clip(first)
		}
		r := network.Rule{
			Switch: at.Switch, Stage: network.StageRewrite, Offset: rule.RewriteChannel,
			Match: p.match(at.Port), Actions: p.onward(first, at.Port, forks[at]),
		}
		if len(r.Actions) == 0 && at.Switch == p.Tree.Root.Switch {
			continue
		}
		if at.Switch == p.Tree.Root.Switch && p.Meter != 0 {
			r.Meter = p.Meter
			out.Meters = append(out.Meters, meterOf(at.Switch, p.Meter, p.Rate))
		}
		out.Rules = append(out.Rules, r)
	}
	return out
}

// taken lists by which ports switches take the channel up, those that are farthest from the
// root first.
func (p *Plan) taken() []network.PortRef {
	far := map[network.PortRef]int{}
	for _, t := range []Tree{p.Before, p.Tree} {
		depth := t.depth()
		for d, in := range t.In() {
			far[network.PortRef{Switch: d, Port: in}] = depth[d]
		}
	}
	return slices.SortedFunc(maps.Keys(far), func(a, b network.PortRef) int { return cmp.Or(cmp.Compare(far[b], far[a]), a.Compare(b)) })
}

// onward adds what sends the channel on by links to what a switch does with it.
func (p *Plan) onward(actions []openflow.Action, in uint32, links []Edge) []openflow.Action {
	slices.SortFunc(links, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(p.Queues[a.From], p.Queues[b.From]), a.From.Compare(b.From))
	})
	queue := uint32(0)
	for _, e := range links {
		at := e.From
		actions = queued(actions, queue, p.Queues[at])
		queue = p.Queues[at]
		if p.LinkMACs {
			actions = append(actions, openflow.SetField(openflow.EthSrc(LinkMAC(at))))
		}
		actions = append(actions, openflow.Output(network.Hop{Switch: at.Switch, In: in, Out: at.Port}.Output()))
	}
	return actions
}

// LinkMAC is the source address of what crosses the link from a port, if each is to have one of
// its own: a network of learning switches between ours then sees no address at two places. It
// is locally administered, and the same in every run. Two links share one with a probability of
// 1 in 10^12.
func LinkMAC(from network.PortRef) openflow.MAC {
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, from) // into a hash
	sum := h.Sum64()
	sum ^= sum >> 40
	return openflow.MAC{0x02, byte(sum >> 32), byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}
}

// queued adds what has packets leave in another queue than before.
func queued(actions []openflow.Action, before, queue uint32) []openflow.Action {
	if queue == before {
		return actions
	}
	return append(actions, openflow.SetQueue(queue))
}

// groups are those that have copies at a switch.
func (p *Plan) groups(d openflow.DatapathID) (out []network.Group) {
	at := p.Copies[d]
	if at == nil {
		return nil
	}
	for n := range MaxGroups {
		if buckets := at.buckets(n); len(buckets) > 0 {
			out = append(out, network.Group{Switch: d, ID: p.Group(n), Type: openflow.GroupTypeAll, Buckets: buckets})
		}
	}
	return out
}

func (p *Plan) match(in uint32) openflow.Match {
	return openflow.MustMatch(openflow.InPort(in), openflow.EthType(ethTypeIPv4), openflow.IPProto(protoUDP),
		openflow.IPSrc(p.From.Addr()), openflow.IPDst(p.To.Addr()), openflow.UDPSrc(p.From.Port()), openflow.UDPDst(p.To.Port()))
}

// Guard is what a switch does with all else that goes to the address of channels: nothing.
// So only what is announced and watched gets on.
func Guard(d openflow.DatapathID, media netip.Addr) network.Program {
	return guard(d, 0, openflow.EthType(ethTypeIPv4), openflow.IPDst(media))
}

// GuardByECN does the same, and looks at ECN. It is there for Open vSwitch: what that has cached of
// a channel's packets does not cover ECN, so it goes with the channel's rules, and is not turned
// into a decision to drop, which whoever comes back within seconds would meet. A switch that does
// not take it has nothing else less.
func GuardByECN(d openflow.DatapathID, media netip.Addr) network.Program {
	return guard(d, 1, openflow.EthType(ethTypeIPv4), openflow.IPECN(0), openflow.IPDst(media))
}

func guard(d openflow.DatapathID, above uint16, fields ...openflow.OXM) network.Program {
	return network.Program{Rules: []network.Rule{{
		Switch: d, Stage: network.StageRewrite, Offset: rule.RewriteChannelGuard + above, Match: openflow.MustMatch(fields...),
	}}}
}

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

// Plan describes the tree and the copies that a channel needs in the network.
type Plan struct {
	Tree Tree
	// Draining is the channel's old tree, with the same root, on which packets in flight still
	// arrive. The zero value means that there is none.
	Draining Tree
	// From and To are the source and the destination of the channel's datagrams.
	From, To netip.AddrPort
	// Copies holds the copies for the channel's viewers, by switch. All the switches are part
	// of Tree.
	Copies map[openflow.DatapathID]*Groups
	// Rate is what the channel may send, in bit/s. Meter is the number of the meter that
	// enforces it where the channel enters; zero if the switch there supports none.
	Rate  uint64
	Meter uint32
	// Queues holds the queues of the output ports by which the channel leaves over links. A port
	// that is missing has no queue.
	Queues map[network.PortRef]uint32
	// LinkMACs makes the channel cross each link with a source MAC address that only this link has.
	LinkMACs bool
	// Group returns the identifier of the n-th group at a switch.
	Group func(n int) uint32
}

// Program returns the channel's rules and groups: at each switch one rule for packets from the
// port of the tree, and the groups of the viewers behind it. Without viewers and without
// Draining it is empty. At a switch that only the draining tree reaches and that has no copies any
// more, the rule drops packets in flight, so that they do not reach the rule of Guard. Rules of the
// switches farthest from the root come first: if they are written in this order, no rule forwards to
// a switch without a rule.
func (p *Plan) Program() (out network.Program) {
	forks, copies := p.Tree.transition(p.Draining), map[openflow.DatapathID][]openflow.Action{}
	for _, at := range p.inPorts() {
		first, known := copies[at.Switch] // actions for a link must not apply to viewers' copies
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
			Match: p.match(at.Port), Actions: p.forwardActions(first, at.Port, forks[at]),
		}
		if len(r.Actions) == 0 && at.Switch == p.Tree.Root.Switch {
			continue
		}
		if at.Switch == p.Tree.Root.Switch && p.Meter != 0 {
			r.Meter = p.Meter
			out.Meters = append(out.Meters, newMeter(at.Switch, p.Meter, p.Rate))
		}
		out.Rules = append(out.Rules, r)
	}
	return out
}

// inPorts lists the ports by which the channel enters the switches of both trees, those farthest from
// the root first.
func (p *Plan) inPorts() []network.PortRef {
	far := map[network.PortRef]int{}
	for _, t := range []Tree{p.Draining, p.Tree} {
		depth := t.depths()
		for d, in := range t.InPorts() {
			far[network.PortRef{Switch: d, Port: in}] = depth[d]
		}
	}
	return slices.SortedFunc(maps.Keys(far), func(a, b network.PortRef) int { return cmp.Or(cmp.Compare(far[b], far[a]), a.Compare(b)) })
}

// forwardActions appends the actions that send the channel's packets, which enter by port in, out over
// links.
func (p *Plan) forwardActions(actions []openflow.Action, in uint32, links []Edge) []openflow.Action {
	slices.SortFunc(links, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(p.Queues[a.From], p.Queues[b.From]), a.From.Compare(b.From))
	})
	queue := uint32(0)
	for _, e := range links {
		at := e.From
		actions = appendSetQueue(actions, queue, p.Queues[at])
		queue = p.Queues[at]
		if p.LinkMACs {
			actions = append(actions, openflow.SetField(openflow.EthSrc(LinkMAC(at))))
		}
		actions = append(actions, openflow.Output(network.Hop{Switch: at.Switch, In: in, Out: at.Port}.Output()))
	}
	return actions
}

// LinkMAC returns the source MAC address for packets that cross the link from a port. With it, learning
// switches between two switches of ours do not see one address at several ports. It is locally
// administered and the same in every run. Two links have the same address with a probability of 1 in
// 10^12.
func LinkMAC(from network.PortRef) openflow.MAC {
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, from) // a hash returns no errors
	sum := h.Sum64()
	sum ^= sum >> 40
	return openflow.MAC{0x02, byte(sum >> 32), byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}
}

// appendSetQueue appends an action that selects a queue, unless that is the queue selected before.
func appendSetQueue(actions []openflow.Action, before, queue uint32) []openflow.Action {
	if queue == before {
		return actions
	}
	return append(actions, openflow.SetQueue(queue))
}

// groups returns the groups that have copies at a switch.
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

// Guard returns the rule by which a switch drops packets to the address of channels (media) that match
// no channel's rule. So only channels that are declared and watched are forwarded.
func Guard(d openflow.DatapathID, media netip.Addr) network.Program {
	return guard(d, 0, openflow.EthType(ethTypeIPv4), openflow.IPDst(media))
}

// GuardByECN returns a guard that also matches ECN. It is for Open vSwitch, whose cached decisions
// about a channel's packets do not cover ECN. With this guard, Open vSwitch removes the cached
// decisions together with the channel's rules. Without it, it turns them into a cached drop, which
// also affects viewers who return within seconds. A switch that refuses this rule lacks nothing else.
func GuardByECN(d openflow.DatapathID, media netip.Addr) network.Program {
	return guard(d, 1, openflow.EthType(ethTypeIPv4), openflow.IPECN(0), openflow.IPDst(media))
}

func guard(d openflow.DatapathID, above uint16, fields ...openflow.OXM) network.Program {
	return network.Program{Rules: []network.Rule{{
		Switch: d, Stage: network.StageRewrite, Offset: rule.RewriteChannelGuard + above, Match: openflow.MustMatch(fields...),
	}}}
}

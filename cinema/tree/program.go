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
// the port of the tree, and the groups of the viewers behind it. Without viewers it is empty.
// The rules of the switches that are farthest from the root come first: written in this
// order, none leads to where there is none yet.
func (p *Plan) Program() (out network.Program) {
	in, depth := p.Tree.In(), p.Tree.depth()
	meters := map[openflow.DatapathID]uint32{p.Tree.Root.Switch: p.Meter}
	for _, d := range slices.SortedFunc(maps.Keys(in), func(a, b openflow.DatapathID) int {
		return cmp.Or(cmp.Compare(depth[b], depth[a]), cmp.Compare(a, b))
	}) {
		var actions []openflow.Action
		for n := range MaxGroups { // first: what is set for a link is not for viewers
			if g := p.group(d, n); len(g.Buckets) > 0 {
				out.Groups = append(out.Groups, g)
				actions = append(actions, openflow.GroupAction(g.ID))
			}
		}
		actions = p.onward(actions, d, in[d])
		if len(actions) > 0 {
			out.Rules = append(out.Rules, network.Rule{
				Switch: d, Stage: network.StageRewrite, Offset: rule.RewriteChannel, Match: p.match(in[d]), Actions: actions,
				Meter: meters[d],
			})
			if meters[d] != 0 {
				out.Meters = append(out.Meters, meterOf(d, p.Meter, p.Rate))
			}
		}
	}
	return out
}

// onward adds what sends the channel on over the links of a switch, where it comes in by a port.
func (p *Plan) onward(actions []openflow.Action, d openflow.DatapathID, in uint32) []openflow.Action {
	var ports []network.PortRef
	for _, e := range p.Tree.Edges {
		if e.From.Switch == d {
			ports = append(ports, e.From)
		}
	}
	slices.SortFunc(ports, func(a, b network.PortRef) int {
		return cmp.Or(cmp.Compare(p.Queues[a], p.Queues[b]), cmp.Compare(a.Port, b.Port))
	})
	queue := uint32(0)
	for _, at := range ports {
		actions = queued(actions, queue, p.Queues[at])
		queue = p.Queues[at]
		if p.LinkMACs {
			actions = append(actions, openflow.SetField(openflow.EthSrc(LinkMAC(at))))
		}
		actions = append(actions, openflow.Output(network.Hop{Switch: d, In: in, Out: at.Port}.Output()))
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

// group is the n-th at a switch; one without buckets is none.
func (p *Plan) group(d openflow.DatapathID, n int) network.Group {
	g := network.Group{Switch: d, Type: openflow.GroupTypeAll}
	if at := p.Copies[d]; at != nil {
		g.ID, g.Buckets = p.Group(n), at.buckets(n)
	}
	return g
}

func (p *Plan) match(in uint32) openflow.Match {
	return openflow.MustMatch(openflow.InPort(in), openflow.EthType(ethTypeIPv4), openflow.IPProto(protoUDP),
		openflow.IPSrc(p.From.Addr()), openflow.IPDst(p.To.Addr()), openflow.UDPSrc(p.From.Port()), openflow.UDPDst(p.To.Port()))
}

// Guard is what a switch does with all else that goes to the address of channels: nothing.
// So only what is announced and watched gets on.
func Guard(d openflow.DatapathID, media netip.Addr) network.Program {
	return network.Program{Rules: []network.Rule{{
		Switch: d, Stage: network.StageRewrite, Offset: rule.RewriteChannelGuard,
		Match: openflow.MustMatch(openflow.EthType(ethTypeIPv4), openflow.IPDst(media)),
	}}}
}

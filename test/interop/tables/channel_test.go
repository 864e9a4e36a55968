package tables

import (
	"net/netip"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// media is where the packets of channels go, channelPort from where, and viewerPort the first
// port of viewers at their gateways.
var media = netip.MustParseAddrPort("198.19.255.1:5004")

const (
	channelPort = 20001
	viewerPort  = 6000
)

// channel is a channel of one of the parties, which some of the others watch.
type channel struct {
	from    *party
	way     tree.Tree
	viewers map[*party]uint16 // by their ports
	// queues are those that classes have promised it, by the ports by which it leaves.
	queues map[network.PortRef]uint32
}

// promised is the queue that a class has promised at a port; zero for none.
var promised = rapid.SampledFrom([]uint32{0, 0, 1, 2})

// drawChannel draws a channel, and has the switches lead it.
func (w *world) drawChannel(t *rapid.T) {
	c := &channel{from: &w.parties[rapid.SampledFrom([]int{client, phone, phone}).Draw(t, "channel of")], viewers: map[*party]uint16{}, queues: map[network.PortRef]uint32{}}
	w.channel = c
	want := tree.Want{Root: c.from.at, Rate: 1}
	copies := map[openflow.DatapathID]*tree.Groups{}
	lists := map[openflow.DatapathID][]tree.Copy{}
	for i := range w.parties {
		p := &w.parties[i]
		if p == c.from || p.vlan != c.from.vlan || rapid.IntRange(0, 2).Draw(t, p.name+" watches") == 0 {
			continue
		}
		in := uint32(0)
		if p.at.Switch == c.from.at.Switch {
			in = c.from.at.Port
		}
		d := p.at.Switch
		c.viewers[p] = viewerPort + uint16(i)
		c.queues[p.at] = promised.Draw(t, "queue of "+p.name)
		one := tree.CopyAt(p.at, in, p.mac, netip.AddrPortFrom(p.ip, c.viewers[p]))
		one.Queue = c.queues[p.at]
		lists[d] = append(lists[d], one)
		want.Switches = append(want.Switches, d)
	}
	for d, list := range lists {
		copies[d] = &tree.Groups{}
		copies[d].Set(list)
	}
	c.way, _ = tree.Grow(w.top, tree.Tree{}, want, func(network.PortRef) (left, all uint64) { return 0, 0 })
	for _, e := range c.way.Edges {
		c.queues[e.From] = promised.Draw(t, "queue of link")
	}
	plan := tree.Plan{Tree: c.way, From: netip.AddrPortFrom(c.from.ip, channelPort), To: media, Rate: 1e6, Meter: tree.MeterNumber(1), Copies: copies, Queues: c.queues, Group: func(n int) uint32 {
		return rule.GroupID(rule.OwnerHash("cinema"), tree.GroupNumber(1, n))
	}}
	if !w.apply(t, "cinema", "channel", plan.Program()) {
		t.Fatalf("the ledger refuses the channel %v", c.way)
	}
	for _, sw := range w.top.Switches {
		w.declare(t, "cinema", "guard/"+sw.String(), tree.Guard(sw, media.Addr()).Rules)
		w.declare(t, "cinema", "guard-by-ecn/"+sw.String(), tree.GuardByECN(sw, media.Addr()).Rules)
	}
}

// leads is what the tree does with a packet of the channel.
func (c *channel) leads(at network.PortRef, h *packet.Headers) (outs []copyOut, ok bool) {
	in, on := c.way.InPorts()[at.Switch]
	if len(c.viewers) == 0 || !on || in != at.Port || !h.Has(packet.IPv4|packet.UDP) || h.Src != c.from.ip || h.Destination() != media || h.SrcPort != channelPort {
		return nil, false
	}
	for _, e := range c.way.Edges {
		if e.From.Switch == at.Switch {
			outs = append(outs, copyOut{port: e.From.Port, queue: c.queues[e.From], h: *h})
		}
	}
	for p, port := range c.viewers {
		if p.at.Switch == at.Switch {
			out := copyOut{port: p.at.Port, queue: c.queues[p.at], h: *h}
			out.h.EthDst, out.h.Dst, out.h.DstPort = p.mac, p.ip, port
			outs = append(outs, out)
		}
	}
	return outs, true
}

// ofChannel is a packet of the channel, or something else that goes to the address of channels.
func (r traffic) ofChannel() (network.PortRef, packet.Headers) {
	at, h := r.anything()
	h.EthDst, h.Dst = openflow.MAC{2, 0, 0xc6, 0x12, 0, 1}, media.Addr()
	c := r.w.channel
	switch r.IntN(6) {
	case 0: // a segment, maybe of an agent
	case 1:
		datagram(&h)
		h.SrcPort, h.DstPort = pick(r, uint16(67), 68), pick(r, uint16(67), 68)
	case 2: // of the mobile device, or of somebody who uses its address
		h.Src = r.w.parties[phone].ip
		at = pick(r, r.w.parties[phone].at, at)
	default:
		datagram(&h)
		at, h.EthSrc, h.Src, h.SrcPort, h.DstPort = c.from.at, c.from.mac, c.from.ip, channelPort, media.Port()
		tag(&h, c.from.vlan)
		if d := r.w.device; d != nil && c.from == &r.w.parties[phone] && !d.mac.IsZero() {
			h.EthSrc = d.mac
		}
	}
	return at, h
}

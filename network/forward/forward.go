package forward

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Hosts is what forwarding asks of the host table.
type Hosts interface {
	Lookup(mac openflow.MAC, vlan uint16) (topology.PortRef, bool)
	Neighbor(addr netip.Addr, vlan uint16) (hosts.Neighbor, bool)
	IsVirtual(mac openflow.MAC) bool
}

// Edges is what forwarding asks of discovery.
type Edges interface {
	IsEdge(topology.PortRef) bool
	EdgePorts(openflow.DatapathID) []uint32
}

// View is the network as forwarding sees it.
type View struct {
	Topology *topology.Topology
	Hosts    Hosts
	Edges    Edges
	Metric   topology.Metric
	// IgnoreVLAN makes flows in all VLANs one.
	IgnoreVLAN bool
	// Proactive: rules by destination lead packets; flows have none.
	Proactive bool
	// CanMatch tells whether a switch's rules can match a field; nil means all can.
	CanMatch func(openflow.DatapathID, openflow.Field) bool
}

// PacketOut is a packet to be sent. Without Data it is the packet that was
// decided upon. InPort is what the switch takes as the packet's in-port.
type PacketOut struct {
	Switch  openflow.DatapathID
	InPort  uint32
	Actions []openflow.Action
	Data    []byte
}

// Verb says what a decision does with the packet.
type Verb uint8

// The verbs.
const (
	// Drop: the packet goes nowhere. Why says why.
	Drop Verb = iota
	// Forward: towards a known host.
	Forward
	// Flood: along the tree and out of edge ports.
	Flood
	// Answer: answered in the target's place.
	Answer
)

var verbs = [...]string{"drop", "forward", "flood", "answer"}

// String is the verb.
func (v Verb) String() string { return verbs[v] }

// Decision is what to do about a packet: first bring the rules of Flow, if any,
// into the switches, then send Out, unless it has no actions.
type Decision struct {
	Verb Verb
	Why  string
	// Flow is the flow the packet belongs to, if it is to have rules; New tells
	// that it is not yet in the table, or goes another way than it did.
	Flow *Flow
	New  bool
	Out  PacketOut
}

func drop(why string) Decision { return Decision{Verb: Drop, Why: why} }

// Decide decides upon a packet that came in at a port. It changes the table only
// by adding the flow of a Decision that is New.
func (t *Table) Decide(v *View, at topology.PortRef, h *packet.Headers) Decision {
	switch {
	case h.EthDst.IsMulticast():
		if isLinkLocal(h.EthDst) {
			return drop("a link-local group address that bridges do not pass on")
		}
		if d, ok := answer(v, at, h); ok {
			return d
		}
		return v.flood(at, "group address")
	case h.EthDst.IsZero():
		return drop("destination address zero")
	case v.Hosts.IsVirtual(h.EthDst):
		if d, ok := answer(v, at, h); ok { // hosts ask for what they know already
			return d
		}
		return drop("a virtual address, whose service does not take the packet")
	}
	vlan := v.vlan(h)
	to, ok := v.Hosts.Lookup(h.EthDst, vlan)
	if !ok {
		return v.flood(at, "unknown destination")
	}
	if to == at {
		return drop("the destination is behind the port the packet came from")
	}
	if v.Proactive {
		return v.passOn(at, to, "the switch has no rule for the destination yet")
	}
	return t.unicast(v, at, to, Key{Src: h.EthSrc, Dst: h.EthDst, VLAN: vlan})
}

func (v *View) vlan(h *packet.Headers) uint16 {
	if v.IgnoreVLAN {
		return 0
	}
	return h.VLANID
}

// isLinkLocal: 01:80:c2:00:00:00 to 0f, that is STP, LACP, pause, 802.1X, LLDP.
func isLinkLocal(m openflow.MAC) bool {
	return m[0] == 0x01 && m[1] == 0x80 && m[2] == 0xc2 && m[3] == 0 && m[4] == 0 && m[5] < 16
}

// unicast forwards to a known place. The flow gets rules only if its source is
// known where the path begins: a forged source address cannot redirect the rules
// of the address's owner.
func (t *Table) unicast(v *View, at, to topology.PortRef, k Key) Decision {
	from, known := v.Hosts.Lookup(k.Src, k.VLAN)
	if !known {
		return v.passOn(at, to, "unknown source")
	}
	if f := t.find(k); f != nil && f.ends(from, to) {
		if out, ok := f.outAt(at); ok {
			return Decision{Verb: Forward, Flow: f, Out: PacketOut{Switch: at.Switch, InPort: at.Port, Actions: out}}
		}
	}
	path, ok := v.Topology.Path(from, to, v.Metric)
	if !ok {
		return drop("no path to the destination")
	}
	f := newFlow(k, path)
	out, ok := f.outAt(at)
	if !ok {
		return v.passOn(at, to, "the packet is not on its flow's path")
	}
	if !t.put(f) {
		return v.passOn(at, to, "the table of flows is full")
	}
	return Decision{Verb: Forward, Flow: f, New: true, Out: PacketOut{Switch: at.Switch, InPort: at.Port, Actions: out}}
}

// passOn sends one packet one hop further, without rules.
func (v *View) passOn(at, to topology.PortRef, why string) Decision {
	path, ok := v.Topology.Path(at, to, v.Metric)
	if !ok {
		return drop("no path to the destination")
	}
	out := path.Hops[0].Out
	if out == at.Port {
		out = openflow.PortInPort
	}
	return Decision{Verb: Forward, Why: why, Out: PacketOut{
		Switch: at.Switch, InPort: at.Port, Actions: []openflow.Action{openflow.Output(out)},
	}}
}

// flood sends a packet along the tree and out of the switch's edge ports.
func (v *View) flood(at topology.PortRef, why string) Decision {
	if !v.Edges.IsEdge(at) && !v.Topology.OnTree(at) {
		return drop(why + ", from a port that is neither edge nor on the broadcast tree")
	}
	return Decision{Verb: Flood, Why: why, Out: PacketOut{
		Switch: at.Switch, InPort: at.Port, Actions: v.floodActions(at),
	}}
}

// floodActions are outputs to the tree ports and edge ports of a switch, but not
// to the port the packet came from.
func (v *View) floodActions(at topology.PortRef) []openflow.Action {
	tree, edge := v.Topology.TreePorts(at.Switch), v.Edges.EdgePorts(at.Switch)
	actions := make([]openflow.Action, 0, len(tree)+len(edge))
	for _, ports := range [][]uint32{tree, edge} {
		for _, p := range ports {
			if a := openflow.Output(p); p != at.Port && !slices.Contains(actions, a) {
				actions = append(actions, a)
			}
		}
	}
	return actions
}

// AnswerAge is how recently a host must have been heard to be answered for. The
// question for one that has been silent for longer is passed on: it may be gone,
// and if it is not, its answer makes it known again.
const AnswerAge = time.Minute

// answer answers ARP requests and neighbour solicitations for known addresses.
// What serves to find that an address is taken twice (probes and announcements)
// is not answered: the table may be out of date, the target itself is not.
func answer(v *View, at topology.PortRef, h *packet.Headers) (Decision, bool) {
	var data []byte
	switch {
	case h.Has(packet.ARP) && h.ARPOp == packet.ARPRequest && !h.Src.IsUnspecified() && h.Src != h.Dst:
		n, ok := v.neighbor(h.Dst, at, h)
		if !ok {
			return Decision{}, false
		}
		data = packet.AppendARPReply(nil, h, n.MAC)
	case h.Has(packet.ND) && h.ICMPType == packet.NeighborSolicitation && h.TTL == 255 && !h.Src.IsUnspecified():
		n, ok := v.neighbor(h.NDTarget, at, h)
		if !ok || n.Router == hosts.RouterUnknown {
			return Decision{}, false
		}
		flags := uint8(packet.NDSolicited | packet.NDOverride)
		if n.Router == hosts.IsRouter {
			flags |= packet.NDRouter
		}
		data = packet.AppendNeighborAdvertisement(nil,
			packet.Frame{Dst: h.EthSrc, Src: n.MAC, VLAN: h.VLANID, PCP: h.VLANPCP},
			packet.Advertisement{Target: h.NDTarget, MAC: n.MAC, To: h.Src, Flags: flags})
	default:
		return Decision{}, false
	}
	return Decision{Verb: Answer, Why: "address known", Out: PacketOut{
		Switch: at.Switch, InPort: openflow.PortController, Actions: []openflow.Action{openflow.Output(at.Port)}, Data: data,
	}}, true
}

// neighbor finds the host that the question h is for, if it may be answered for:
// it is not itself where the question comes from, and has been heard lately.
func (v *View) neighbor(a netip.Addr, at topology.PortRef, h *packet.Headers) (hosts.Neighbor, bool) {
	n, ok := v.Hosts.Neighbor(a, v.vlan(h))
	return n, ok && n.At != at && n.MAC != h.EthSrc && time.Since(n.Seen) <= AnswerAge
}

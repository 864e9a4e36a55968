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

// Hosts is the part of the host table that forwarding uses.
type Hosts interface {
	Lookup(mac openflow.MAC, vlan uint16) (topology.PortRef, bool)
	Neighbor(addr netip.Addr, vlan uint16) (hosts.Neighbor, bool)
	IsVirtual(mac openflow.MAC) bool
}

// Edges is the part of discovery that forwarding uses.
type Edges interface {
	IsEdge(topology.PortRef) bool
	EdgePorts(openflow.DatapathID) []uint32
	// BlockedPorts returns the ports that are blocked because a bridge that the controller does not
	// control closes a loop there.
	BlockedPorts(openflow.DatapathID) []uint32
}

// View holds what forwarding knows about the network.
type View struct {
	Topology *topology.Topology
	Hosts    Hosts
	Edges    Edges
	Metric   topology.Metric
	// IgnoreVLAN makes the flows of all VLANs one flow.
	IgnoreVLAN bool
	// Proactive is true if rules by destination forward packets; then flows have no rules.
	Proactive bool
	// CanMatch reports whether a switch's rules can match a field; nil means that all can.
	CanMatch func(openflow.DatapathID, openflow.Field) bool
}

// PacketOut is a packet to be sent. If Data is nil, it is the packet that the decision is about.
// InPort is the in-port with which the switch applies the actions.
type PacketOut struct {
	Switch  openflow.DatapathID
	InPort  uint32
	Actions []openflow.Action
	Data    []byte
}

// Verb is what a decision does with the packet.
type Verb uint8

// The verbs.
const (
	// Drop drops the packet, for the reason Why.
	Drop Verb = iota
	// Forward sends the packet towards a known host.
	Forward
	// Flood sends the packet along the tree and out of edge ports.
	Flood
	// Answer answers the packet in the target's place.
	Answer
)

var verbNames = [...]string{"drop", "forward", "flood", "answer"}

// String returns the verb in lower case.
func (v Verb) String() string { return verbNames[v] }

// Decision describes what to do with a packet. The caller first installs the rules of Flow, if it is
// not nil, and then sends Out, unless Out has no actions.
type Decision struct {
	Verb Verb
	Why  string
	// Flow is the packet's flow, or nil if the flow gets no rules. New reports whether the flow was
	// not in the table before, or has a new path.
	Flow *Flow
	New  bool
	Out  PacketOut
}

func drop(why string) Decision { return Decision{Verb: Drop, Why: why} }

// Decide decides about a packet that arrived at a port. The only change that it makes to the
// table is to add the flow of a Decision that is New.
func (t *Table) Decide(v *View, at topology.PortRef, h *packet.Headers) Decision {
	switch {
	case h.EthDst.IsMulticast():
		if isReservedGroup(h.EthDst) {
			return drop("a link-local group address that bridges do not pass on")
		}
		if d, ok := answerQuery(v, at, h); ok {
			return d
		}
		return v.flood(at, "group address")
	case h.EthDst.IsZero():
		return drop("destination address zero")
	case v.Hosts.IsVirtual(h.EthDst):
		if d, ok := answerQuery(v, at, h); ok { // hosts also send unicast queries for addresses that they know
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
		return v.forwardOneHop(at, to, "the switch has no rule for the destination yet")
	}
	return t.unicast(v, at, to, Key{Src: h.EthSrc, Dst: h.EthDst, VLAN: vlan})
}

func (v *View) vlan(h *packet.Headers) uint16 {
	if v.IgnoreVLAN {
		return 0
	}
	return h.VLANID
}

// isReservedGroup reports whether m is one of 01:80:c2:00:00:00 to 0f: STP, LACP, pause, 802.1X,
// LLDP.
func isReservedGroup(m openflow.MAC) bool {
	return m[0] == 0x01 && m[1] == 0x80 && m[2] == 0xc2 && m[3] == 0 && m[4] == 0 && m[5] < 16
}

// unicast forwards to a known port. The flow gets rules only if its source is known to be where
// the path begins, so that a forged source address cannot redirect the rules of the address's
// owner.
func (t *Table) unicast(v *View, at, to topology.PortRef, k Key) Decision {
	from, known := v.Hosts.Lookup(k.Src, k.VLAN)
	if !known {
		return v.forwardOneHop(at, to, "unknown source")
	}
	if f := t.find(k); f != nil && f.connects(from, to) {
		if out, ok := f.actionsAt(at); ok {
			return Decision{Verb: Forward, Flow: f, Out: PacketOut{Switch: at.Switch, InPort: at.Port, Actions: out}}
		}
	}
	path, ok := v.Topology.Path(from, to, v.Metric)
	if !ok {
		return drop("no path to the destination")
	}
	f := newFlow(k, path)
	out, ok := f.actionsAt(at)
	if !ok {
		return v.forwardOneHop(at, to, "the packet is not on its flow's path")
	}
	if !t.put(f) {
		return v.forwardOneHop(at, to, "the table of flows is full")
	}
	return Decision{Verb: Forward, Flow: f, New: true, Out: PacketOut{Switch: at.Switch, InPort: at.Port, Actions: out}}
}

// forwardOneHop sends one packet one hop further, without rules.
func (v *View) forwardOneHop(at, to topology.PortRef, why string) Decision {
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

// floodActions returns outputs to the tree ports and edge ports of a switch, except the port
// from which the packet came.
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

// AnswerAge is the time after which forwarding no longer answers for a silent host. Queries for
// such a host are forwarded: it may have left, and if it has not, its answer reveals it again.
const AnswerAge = time.Minute

// answerQuery answers ARP requests and neighbour solicitations for known addresses. It does not
// answer probes and announcements, which detect duplicate addresses, because the table may be
// out of date.
func answerQuery(v *View, at topology.PortRef, h *packet.Headers) (Decision, bool) {
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

// neighbor returns the host that the query h is for, if forwarding may answer for it: the host
// is not at the port of the query, and was seen recently.
func (v *View) neighbor(a netip.Addr, at topology.PortRef, h *packet.Headers) (hosts.Neighbor, bool) {
	n, ok := v.Hosts.Neighbor(a, v.vlan(h))
	return n, ok && n.At != at && n.MAC != h.EthSrc && time.Since(n.Seen) <= AnswerAge
}

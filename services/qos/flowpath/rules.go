package flowpath

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

// Forwarding describes how a flow is forwarded.
type Forwarding struct {
	Header match.Header
	Hops   []network.Hop
	// Stage and Offset are the stage and the priority offset of the rules.
	Stage  network.Stage
	Offset uint16
	// Idle is how long the flow has to be silent before the rule where it enters is removed and its
	// owner notified, in whole seconds.
	Idle time.Duration
	// Meter returns the meter that traffic out of a port has to pass; zero for none. A nil
	// function means that there are no meters.
	Meter func(network.PortRef) uint32
}

// Rules returns the rules that forward the flow along its path, and its answers back.
func (l Forwarding) Rules() (rules []network.Rule) {
	add := func(h match.Header, hop network.Hop) *network.Rule {
		r := network.Rule{
			Switch: hop.Switch, Stage: l.Stage, Offset: l.Offset, Match: h.Match(hop.In), Actions: []openflow.Action{openflow.Output(hop.Output())},
		}
		if l.Meter != nil {
			r.Meter = l.Meter(network.PortRef{Switch: hop.Switch, Port: hop.Out})
		}
		rules = append(rules, r)
		return &rules[len(rules)-1]
	}
	answers := l.Header.Reverse()
	for _, hop := range slices.Backward(l.Hops) {
		r := add(l.Header, hop)
		if hop == l.Hops[0] {
			r.Idle, r.NotifyRemoved = l.Idle, true
		}
		add(answers, network.Hop{Switch: hop.Switch, In: hop.Out, Out: hop.In})
	}
	return rules
}

// LinkPorts returns the ports by which a path leaves switches for other switches, in both
// directions.
func LinkPorts(hops []network.Hop) (out []network.PortRef) {
	for i, hop := range hops {
		if i < len(hops)-1 {
			out = append(out, network.PortRef{Switch: hop.Switch, Port: hop.Out})
		}
		if i > 0 {
			out = append(out, network.PortRef{Switch: hop.Switch, Port: hop.In})
		}
	}
	return out
}

// AllPorts returns the ports by which a flow and its answers leave switches, including
// those to its hosts.
func AllPorts(hops []network.Hop) (out []network.PortRef) {
	for _, hop := range hops {
		out = append(out, network.PortRef{Switch: hop.Switch, Port: hop.Out}, network.PortRef{Switch: hop.Switch, Port: hop.In})
	}
	return out
}

// Network is the part of a network that this package uses; kit.Network implements it.
type Network interface {
	Topology() *network.Topology
	HostByMAC(mac openflow.MAC, vlan uint16) (network.Host, bool)
	CanMatch(openflow.DatapathID, openflow.Field) (can, known bool)
}

// MatchesTCPFlags reports whether a switch's rules can match TCP flags. It returns true for a
// switch that is not connected, because that switch may have accepted such rules before.
func MatchesTCPFlags(n Network, d openflow.DatapathID) bool {
	can, known := n.CanMatch(d, openflow.FieldTCPFlags)
	return can || !known
}

// HostMoved reports whether the source of a flow is now at another port than from, or its
// destination at another port than to.
func HostMoved(n Network, h match.Header, from, to network.PortRef) bool {
	elsewhere := func(mac openflow.MAC, than network.PortRef) bool {
		host, known := n.HostByMAC(mac, h.VLAN)
		return known && !host.At.IsZero() && host.At != than
	}
	return elsewhere(h.EthSrc, from) || elsewhere(h.EthDst, to)
}

// Hop is one switch of a flow's path, as the API shows it.
type Hop struct {
	Switch openflow.DatapathID `json:"switch"`
	In     uint32              `json:"in" doc:"Port by which its packets come in"`
	Out    uint32              `json:"out" doc:"Port by which they leave"`
}

// HopsOf returns a path as the API shows it.
func HopsOf(hops []network.Hop) []Hop {
	out := make([]Hop, len(hops))
	for i, h := range hops {
		out[i] = Hop(h)
	}
	return out
}

package way

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/match"
)

// Lead is how a flow is led.
type Lead struct {
	Header match.Header
	Hops   []network.Hop
	// Stage and Offset are those of the rules.
	Stage  network.Stage
	Offset uint16
	// Idle is how long the flow has to be silent until the rule where it enters is removed,
	// and its owner told, in whole seconds.
	Idle time.Duration
	// Meter gives the meter that traffic out of a port has to pass, zero for none; nil where
	// there is none at all.
	Meter func(network.PortRef) uint32
}

// Rules lead the flow along its way, and its answers back.
func (l Lead) Rules() (rules []network.Rule) {
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

// Ports are those by which a way leaves switches for other switches, in both directions.
func Ports(hops []network.Hop) (out []network.PortRef) {
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

// Outs returns the ports by which a flow and its answers leave switches, those to its hosts
// included.
func Outs(hops []network.Hop) (out []network.PortRef) {
	for _, hop := range hops {
		out = append(out, network.PortRef{Switch: hop.Switch, Port: hop.Out}, network.PortRef{Switch: hop.Switch, Port: hop.In})
	}
	return out
}

// State is what is asked of a network; a service.Network has it.
type State interface {
	Topology() *network.Topology
	HostByMAC(mac openflow.MAC, vlan uint16) (network.Host, bool)
	CanMatch(openflow.DatapathID, openflow.Field) (can, known bool)
}

// SeesTCPFlags says whether a switch's rules can match TCP's flags. One that is not connected is
// taken to be able to: its rules were once accepted.
func SeesTCPFlags(n State, d openflow.DatapathID) bool {
	can, known := n.CanMatch(d, openflow.FieldTCPFlags)
	return can || !known
}

// Moved says whether a host of a flow is elsewhere than where the flow enters or leaves.
func Moved(n State, h match.Header, from, to network.PortRef) bool {
	elsewhere := func(mac openflow.MAC, than network.PortRef) bool {
		host, known := n.HostByMAC(mac, h.VLAN)
		return known && !host.At.IsZero() && host.At != than
	}
	return elsewhere(h.EthSrc, from) || elsewhere(h.EthDst, to)
}

// Hop is one switch of a flow's path, for a reader.
type Hop struct {
	Switch openflow.DatapathID `json:"switch"`
	In     uint32              `json:"in" doc:"Port by which its packets come in"`
	Out    uint32              `json:"out" doc:"Port by which they leave"`
}

// Shown is a way for a reader.
func Shown(hops []network.Hop) []Hop {
	out := make([]Hop, len(hops))
	for i, h := range hops {
		out[i] = Hop(h)
	}
	return out
}

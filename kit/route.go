package kit

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// MissingLink returns a message about the first link of a route that is not known, or "" if all
// links are known. certain reports whether the link is certainly down: both its switches are
// connected, or a connected switch reports that its port is down. If certain is false, a switch may
// only have lost its connection to the controller.
func MissingLink(n interface {
	Topology() *network.Topology
	PortUp(network.PortRef) (up, known bool)
}, hops []network.Hop,
) (why string, certain bool) {
	t := n.Topology()
	for i := range len(hops) - 1 {
		a, b := hops[i], hops[i+1]
		from, to := network.PortRef{Switch: a.Switch, Port: a.Out}, network.PortRef{Switch: b.Switch, Port: b.In}
		if l, ok := t.LinkFrom(from); ok && l.To == to {
			continue
		}
		upA, _ := n.PortUp(from)
		upB, _ := n.PortUp(to)
		hasA, hasB := t.Has(a.Switch), t.Has(b.Switch)
		certain := hasA && hasB || hasA && !upA || hasB && !upB
		return fmt.Sprintf("the link from %v to %v is down", from, to), certain
	}
	return "", true
}

// Waves returns the order in which the switches of a route are written: the switches between the
// ends, then the last switch, where answers enter, and then the first one, where the flow enters.
func Waves(hops []network.Hop) [][]openflow.DatapathID {
	first, last := hops[0].Switch, hops[len(hops)-1].Switch
	var between []openflow.DatapathID
	for _, hop := range hops {
		if hop.Switch != first && hop.Switch != last {
			between = append(between, hop.Switch)
		}
	}
	return [][]openflow.DatapathID{between, {last}, {first}}
}

// Reversed returns a route in the opposite direction.
func Reversed(hops []network.Hop) []network.Hop {
	out := make([]network.Hop, 0, len(hops))
	for _, hop := range slices.Backward(hops) {
		out = append(out, network.Hop{Switch: hop.Switch, In: hop.Out, Out: hop.In})
	}
	return out
}

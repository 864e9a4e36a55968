package service

import (
	"fmt"

	"github.com/sluice-net/sluice/network"
)

// MissingLink finds the first link of a route that is not there, and says so; nothing if all are.
// It is certain if both its switches are connected, or a port says that it is down: a
// switch may have lost its connection to the controller alone.
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

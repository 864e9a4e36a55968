package classes

import (
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// FindRoute returns the route that a flow of the class would get between two hosts if no bandwidth
// were promised to others.
func (c *Class) FindRoute(t *topology.Topology, flow int, src, dst topology.Host) (Route, error) {
	r, _, err := findRoute(t, c, flow, endpoints{src: src, dst: dst, anySource: !c.Flows[flow].Src.IsValid()}, func(topology.Link) string { return "" })
	return r, err
}

// Rules returns the rules of the class on the routes of its flows. userspace holds the switches
// that need marks. If there are any, the class is refused if its flows do not all have the same
// DSCP.
func (c *Class) Rules(ways []Route, queue uint32, userspace map[openflow.DatapathID]bool) (rule.Program, error) {
	own, err := ownDSCP(c)
	if err != nil && len(userspace) > 0 {
		return rule.Program{}, err
	}
	return program(c, ways, queue, own, userspace), nil
}

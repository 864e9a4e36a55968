package latency

import (
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Way is that of a flow of the class between two hosts, when nothing is promised to others.
func (c *Class) Way(t *topology.Topology, flow int, src, dst topology.Host) (Route, error) {
	r, _, err := way(t, c, flow, ends{src: src, dst: dst, open: !c.Flows[flow].Src.IsValid()}, func(topology.Link) string { return "" })
	return r, err
}

// Rules are those of the class on the ways of its flows. userspace are the switches that need
// marks; a class that they cannot tell from others is refused.
func (c *Class) Rules(ways []Route, queue uint32, userspace map[openflow.DatapathID]bool) (rule.Program, error) {
	own, err := ownDSCP(c)
	if err != nil && len(userspace) > 0 {
		return rule.Program{}, err
	}
	return program(c, ways, queue, own, userspace), nil
}

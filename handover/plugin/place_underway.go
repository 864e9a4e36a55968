package plugin

import (
	"time"

	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/network"
)

// settling is how long a switch may go on by rules that it says it has replaced:
// Open vSwitch confirms before it has looked through what it keeps of each flow.
const settling = 50 * time.Millisecond

// longestWay bounds for how long a change waits for packets that are under way, whatever has been
// measured: the next move of the device waits for it.
const longestWay = 500 * time.Millisecond

// underWay is for how long packets may still be under way along a path that is left.
func (s *placement) underWay(path []network.Hop) time.Duration {
	_, links := route.Branch(s.net.Topology(), path, s.net.ControlLatency)
	out := settling
	for _, l := range links {
		out += l
	}
	return min(out, longestWay)
}

package handover

import (
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/handover/route"
)

// settling is how long a switch may still apply rules that it says it has replaced: Open vSwitch
// confirms before it has revalidated its cached flows.
const settling = 50 * time.Millisecond

// maxInFlight bounds how long a change waits for packets in flight, whatever latency has been
// measured: the device's next move waits as long.
const maxInFlight = 500 * time.Millisecond

// inFlightTime returns how long packets may still be in flight along a path that is no longer
// used.
func (s *placement) inFlightTime(path []network.Hop) time.Duration {
	_, links := route.BranchLatencies(s.net.Topology(), path, s.net.ControlLatency)
	out := settling
	for _, l := range links {
		out += l
	}
	return min(out, maxInFlight)
}

package flowpath

import (
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

// HostCounts counts flows by their end hosts. Hosts can cause events at will, and with these counts
// a service handles such an event only if the host has a flow. HostCounts is not safe for
// concurrent use.
type HostCounts map[openflow.MAC]int

// Add counts a flow with the header h.
func (e HostCounts) Add(h match.Header) {
	e[h.EthSrc]++
	e[h.EthDst]++
}

// Remove undoes Add.
func (e HostCounts) Remove(h match.Header) {
	for _, mac := range []openflow.MAC{h.EthSrc, h.EthDst} {
		if e[mac]--; e[mac] <= 0 {
			delete(e, mac)
		}
	}
}

// Has reports whether a host is an end of any flow.
func (e HostCounts) Has(mac openflow.MAC) bool { return e[mac] > 0 }

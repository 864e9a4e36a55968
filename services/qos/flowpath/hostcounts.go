package flowpath

import (
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

// HostCounts counts flows by their end hosts, so that events of a host, which hosts can
// cause at will, are handled only if the host has a flow. It is not safe for concurrent
// use.
type HostCounts map[openflow.MAC]int

// Add adds a flow.
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

// Has reports whether a host is an end of a flow.
func (e HostCounts) Has(mac openflow.MAC) bool { return e[mac] > 0 }

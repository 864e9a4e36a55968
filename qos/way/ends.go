package way

import (
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/match"
)

// Ends counts flows by the hosts between which they are, so that news of a host, which hosts cause at
// will, is looked at only where it concerns one. It is not safe for concurrent use.
type Ends map[openflow.MAC]int

// Add notes a flow.
func (e Ends) Add(h match.Header) {
	e[h.EthSrc]++
	e[h.EthDst]++
}

// Remove undoes Add.
func (e Ends) Remove(h match.Header) {
	for _, mac := range []openflow.MAC{h.EthSrc, h.EthDst} {
		if e[mac]--; e[mac] <= 0 {
			delete(e, mac)
		}
	}
}

// Has says whether a host is an end of a flow.
func (e Ends) Has(mac openflow.MAC) bool { return e[mac] > 0 }

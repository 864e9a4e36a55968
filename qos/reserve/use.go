package reserve

import (
	"time"

	"github.com/sluice-net/sluice/network"
)

// staleRate is the age at which the rate of a port says nothing any more.
const staleRate = time.Minute

// Of is what a network knows of the traffic on its links, and out of ports to hosts.
func Of(n *network.Network) func(Link) Use {
	return func(at Link) Use {
		if l, ok := n.Topology().LinkFrom(at); ok {
			return Use{Capacity: l.Capacity, Used: l.Used}
		}
		u := Use{Capacity: n.Capacity(at)}
		if r, ok := n.Traffic().Port(at); ok && time.Since(r.At) < staleRate {
			u.Used = uint64(r.TxBits)
		}
		return u
	}
}

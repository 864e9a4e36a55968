package reserve

import (
	"time"

	"github.com/sluice-net/sluice/network"
)

const (
	// staleAfter is the number of its reading intervals for which the rate of a port stays valid.
	// staleRate is the least time for which it does.
	staleAfter = 3
	staleRate  = 5 * time.Second
)

// UseOf returns a function that returns a network's measurements of the traffic on its links, and
// out of ports to hosts.
func UseOf(n *network.Network) func(Link) Use {
	return func(at Link) Use {
		var u Use
		var read time.Time
		var interval time.Duration
		if l, ok := n.Topology().LinkFrom(at); ok {
			load := n.Traffic().Link(l)
			u, read, interval = Use{Capacity: l.Capacity, Used: load.Used}, load.At, load.Interval
		} else {
			u.Capacity = n.Capacity(at)
			if r, ok := n.Traffic().Port(at); ok {
				u.Used, read, interval = uint64(r.TxBits), r.At, r.Interval
			}
		}
		u.Until = read.Add(max(staleRate, staleAfter*interval))
		if u.Unknown = read.IsZero() || !time.Now().Before(u.Until); u.Unknown {
			u.Used = 0
		}
		return u
	}
}

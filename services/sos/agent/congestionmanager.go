package agent

import (
	"sync/atomic"
	"time"
)

// congestionManager manages the congestion control of a session's connections to the peer.
type congestionManager struct {
	s   *session
	rtt atomic.Int64 // of the slowest path, because no chunk is in order before it arrives there
}

// update samples the connections, at each heartbeat interval.
func (m *congestionManager) update() {
	slowest := time.Duration(0)
	for _, c := range *m.s.conns.Load() {
		stats, err := m.s.stats(c.net)
		if err != nil {
			continue
		}
		if stats.MinRTT > localRTT {
			c.adaptBacklog(stats)
		}
		slowest = max(slowest, stats.RTT)
	}
	if slowest > 0 {
		m.rtt.Store(int64(slowest))
	}
}

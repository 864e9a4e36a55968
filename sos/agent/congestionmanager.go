package agent

import (
	"sync/atomic"
	"time"
)

// congestionManager looks at a session's connections to the peer.
type congestionManager struct {
	s   *session
	rtt atomic.Int64 // of the slowest path: no chunk is in order before it is
}

// watch looks at the connections, at each beat.
func (m *congestionManager) watch() {
	slowest := time.Duration(0)
	for _, c := range *m.s.conns.Load() {
		stats, err := m.s.stats(c.net)
		if err != nil {
			continue
		}
		if stats.MinRTT > light {
			c.adapt(stats)
		}
		slowest = max(slowest, stats.RTT)
	}
	if slowest > 0 {
		m.rtt.Store(int64(slowest))
	}
}

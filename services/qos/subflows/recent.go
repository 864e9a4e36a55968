package subflows

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// recentLoads holds the latest readings of the ports on the paths of watched subflows. The regular
// readings, several seconds apart, still show load that has ended.
type recentLoads struct {
	mu    sync.Mutex
	ports map[reserve.Link][recentReadings]portReading // the newest first
}

// portReading is the number of bytes that a port had sent by a time.
type portReading struct {
	bytes uint64
	at    time.Time
}

const (
	// recentReadings is the number of readings of a port from which its rate is computed.
	recentReadings = 3
	// recentFor is how long a reading is used.
	recentFor = 4 * watchInterval
)

// add records a reading of a port.
func (r *recentLoads) add(s stats.Sample) {
	if s.TxBytes == stats.Unsupported {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ports == nil {
		r.ports = map[reserve.Link][recentReadings]portReading{}
	}
	now, all := portReading{s.TxBytes, s.Sent.Add(s.Received.Sub(s.Sent) / 2)}, r.ports[s.Port]
	switch last := all[0]; {
	case !now.at.After(last.at): // an old reply overtaken by a newer one
		return
	case now.bytes < last.bytes || now.at.Sub(last.at) > recentFor: // the counter was reset, or the port was not read for a while
		all = [recentReadings]portReading{}
	}
	copy(all[1:], all[:])
	all[0] = now
	r.ports[s.Port] = all
}

// rate returns the rate at which a port sends, in bits per second, and reports whether it is known.
func (r *recentLoads) rate(at reserve.Link, now time.Time) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.ports[at]
	newest := all[0]
	for i := recentReadings - 1; i > 0 && now.Sub(newest.at) <= recentFor; i-- {
		if oldest := all[i]; !oldest.at.IsZero() {
			return uint64(float64(newest.bytes-oldest.bytes) * 8 / newest.at.Sub(oldest.at).Seconds()), true
		}
	}
	return 0, false
}

// latest returns the newest two readings of a port, the newest first. They are zero if there are
// none.
func (r *recentLoads) latest(at reserve.Link) (newest, before portReading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ports[at][0], r.ports[at][1]
}

// clear forgets all readings.
func (r *recentLoads) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ports = nil
}

package handover

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// strangerRate is how many DHCP messages of strangers one edge port may send per second,
// strangerBurst how many at once. A stranger is neither registered nor holds a lease. The messages
// of other devices are bounded by the work queue.
const (
	strangerRate  = 20
	strangerBurst = 100
)

// floods limits what strangers send, with one limiter for each port: a flood from one port
// does not affect others.
type floods struct {
	mu    sync.Mutex
	ports map[network.PortRef]*portFlood
}

// portFlood counts what strangers send at a port.
type portFlood struct {
	limiter *rate.Limiter
	dropped int // messages dropped since the limiter was last full
}

// newFloods returns floods without any port.
func newFloods() *floods { return &floods{ports: map[network.PortRef]*portFlood{}} }

// allow reports whether a stranger's message at a port is handled. first is set for the first
// dropped message of a flood.
func (f *floods) allow(at network.PortRef, now time.Time) (ok, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.ports[at]
	if a == nil {
		a = &portFlood{limiter: rate.NewLimiter(strangerRate, strangerBurst)}
		f.ports[at] = a
	}
	if a.limiter.AllowN(now, 1) {
		return true, false
	}
	a.dropped++
	return false, a.dropped == 1
}

// expire removes the ports whose limiters are full again, and returns how many messages were
// dropped at those that had a flood.
func (f *floods) expire(now time.Time) map[network.PortRef]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := map[network.PortRef]int{}
	for at, a := range f.ports {
		if a.limiter.TokensAt(now) < strangerBurst {
			continue
		}
		if a.dropped > 0 {
			ended[at] = a.dropped
		}
		delete(f.ports, at)
	}
	return ended
}

// flooding reports whether a message of a device is dropped because its port sends too many.
func (s *guards) flooding(d registry.Device, at network.PortRef, arrived time.Time) bool {
	if l, ok := s.registry.Lease(d.ID); d.ID != "" && !d.Learned || ok && l.Active(s.now()) {
		return false
	}
	ok, first := s.floods.allow(at, arrived)
	if ok {
		return false
	}
	s.metrics.dropped.WithLabelValues("port").Inc()
	if first {
		s.log.Warn("DHCP of unknown devices floods a port; what is too much is dropped", "port", at, "a_second", strangerRate)
		s.publish("flood.started", map[string]any{"port": at.String(), "messages_per_second": strangerRate})
	}
	return true
}

// expireFloods reports floods that have ended.
func (s *guards) expireFloods() {
	for at, dropped := range s.floods.expire(s.now()) {
		s.log.Info("DHCP no longer floods a port", "port", at, "dropped", dropped)
		s.publish("flood.ended", map[string]any{"port": at.String(), "dropped": dropped})
	}
}

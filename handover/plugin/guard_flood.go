package plugin

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/network"
)

// How many DHCP messages of strangers one edge port may send: so many a second,
// and so many at once. Strangers are neither registered nor hold a lease; what
// others send is bounded by the work queue.
const (
	strangerRate  = 20
	strangerBurst = 100
)

// floods bounds what strangers send, port by port: a flood from one port must cost
// those at others nothing.
type floods struct {
	mu    sync.Mutex
	ports map[network.PortRef]*allowance
}

// allowance is what a port may still send.
type allowance struct {
	messages float64
	at       time.Time
	dropped  int // since it was last full
}

func newFloods() *floods { return &floods{ports: map[network.PortRef]*allowance{}} }

// admit says whether a stranger's message at a port is handled; first says that it
// is the first of a flood that is not.
func (f *floods) admit(at network.PortRef, now time.Time) (ok, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.ports[at]
	if a == nil {
		a = &allowance{messages: strangerBurst, at: now}
		f.ports[at] = a
	}
	a.refill(now)
	if a.messages >= 1 {
		a.messages--
		return true, false
	}
	a.dropped++
	return false, a.dropped == 1
}

func (a *allowance) refill(now time.Time) {
	a.messages = min(a.messages+max(now.Sub(a.at), 0).Seconds()*strangerRate, strangerBurst)
	a.at = now
}

// over forgets ports that have been quiet for long enough, and returns how many
// messages were dropped at those that had a flood.
func (f *floods) over(now time.Time) map[network.PortRef]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := map[network.PortRef]int{}
	for at, a := range f.ports {
		if a.refill(now); a.messages < strangerBurst {
			continue
		}
		if a.dropped > 0 {
			ended[at] = a.dropped
		}
		delete(f.ports, at)
	}
	return ended
}

// flooding says whether a message of a device is to be dropped because of its port.
func (s *guards) flooding(d registry.Device, at network.PortRef, arrived time.Time) bool {
	if l, ok := s.registry.Lease(d.ID); d.ID != "" && !d.Learned || ok && l.Active(s.now()) {
		return false
	}
	ok, first := s.floods.admit(at, arrived)
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

// floodsOver tells of floods that have ended.
func (s *guards) floodsOver() {
	for at, dropped := range s.floods.over(s.now()) {
		s.log.Info("DHCP no longer floods a port", "port", at, "dropped", dropped)
		s.publish("flood.ended", map[string]any{"port": at.String(), "dropped": dropped})
	}
}

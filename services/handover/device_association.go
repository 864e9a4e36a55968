package handover

import (
	"time"

	"github.com/sluice-net/sluice/network"
)

// association records how a device joined an edge port, as far as the controller sees it.
type association struct {
	up    time.Time // when the port came up
	heard time.Time // when somebody at the port was first heard; zero if nobody was
}

// associationTime bounds T_a. A client waits for up to ten seconds before its first message (RFC
// 2131, 4.4.1); a later one did not wait for the port.
const associationTime = 10 * time.Second

// until returns how long the association took if a device's first DHCP message arrives now. A
// device that was heard before was there already: the time in between is idle time and not part of
// the association.
func (a association) until(now time.Time) time.Duration {
	if !a.heard.IsZero() && a.heard.Before(now) {
		now = a.heard
	}
	took := now.Sub(a.up)
	if took < 0 || took > associationTime {
		return 0
	}
	return took
}

// heardAt records that somebody at a port was heard.
func (s *packetHandler) heardAt(at network.PortRef, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, waiting := s.ports[at]; waiting && a.heard.IsZero() {
		a.heard = now
		s.ports[at] = a
	}
}

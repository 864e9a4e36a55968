package plugin

import (
	"time"

	"github.com/sluice-net/sluice/network"
)

// association is a device's joining of an edge port, as far as the controller sees it.
type association struct {
	up    time.Time // the port came up
	heard time.Time // somebody at it was heard first; zero while nobody was
}

// associationTime bounds T_a. A client waits for up to ten seconds before its first
// message (RFC 2131, 4.4.1); what comes later was not waiting for the port.
const associationTime = 10 * time.Second

// until is how long the association took if a device's first DHCP message comes now.
// A device that was heard before was there already: what lies in between is the
// device's idle time and not part of its way to a connection.
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

// heardAt notes that somebody at a port was heard.
func (s *intake) heardAt(at network.PortRef, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, waiting := s.ports[at]; waiting && a.heard.IsZero() {
		a.heard = now
		s.ports[at] = a
	}
}

package plugin

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
)

const (
	// unpluggedFor is how long the port of an agent may be down before its sessions
	// are over: an end host that could reach the other directly must not wait
	// longer for an agent that nobody reaches, nor be reset by a port that flaps.
	unpluggedFor = 2500 * time.Millisecond
	// plugEvery is how often a port that is down is looked at.
	plugEvery = 50 * time.Millisecond
)

// portDown watches the agents that stand at a port which has gone down.
func (s *Service) portDown(ctx context.Context, at network.PortRef) {
	s.mu.Lock()
	var hit []*agent
	for _, a := range s.agents {
		for _, p := range a.places {
			if p.at == at && !a.unplugged {
				a.unplugged = true
				hit = append(hit, a)
			}
		}
	}
	s.mu.Unlock()
	for _, a := range hit {
		s.start(func(context.Context) { s.watchPlug(ctx, a) })
	}
}

// watchPlug ends the sessions of an agent that stays unplugged, and watches it
// until it is plugged in again or removed.
func (s *Service) watchPlug(ctx context.Context, a *agent) {
	over := time.Now().Add(unpluggedFor)
	for s.portsDown(a) && tasks.Sleep(ctx, plugEvery) == nil {
		if time.Now().After(over) {
			s.loseSessions(a, errUnplugged)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.unplugged = false
}

// portsDown reports whether every port at which a known agent stands is down. A
// switch that is not connected says nothing.
func (s *Service) portsDown(a *agent) bool {
	ports := s.portsOf(a)
	return len(ports) > 0 && !slices.ContainsFunc(ports, func(at network.PortRef) bool {
		up, known := s.net.PortUp(at)
		return up || !known
	})
}

// portsOf lists the ports at which an agent stands; none when it was removed.
func (s *Service) portsOf(a *agent) []network.PortRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents[a.record.Name] != a {
		return nil
	}
	var ports []network.PortRef
	for _, p := range a.places {
		if !slices.Contains(ports, p.at) {
			ports = append(ports, p.at)
		}
	}
	return ports
}

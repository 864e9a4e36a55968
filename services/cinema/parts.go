package cinema

import (
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// Service is Cinema in the controller. Its parts share a core, and each part uses only those
// listed before it.
type Service struct {
	*core
	sources   *sources
	viewers   *viewers
	egress    *egressRegistry
	trees     *treeManager
	admission *admissionLimiter

	delivered  *deliveryCounters
	thumbnails *gatewayapi.Thumbnails
}

// Name returns the service's name.
func (s *Service) Name() string { return Name }

// Loaded returns a channel that is closed once the stored channels have been read.
func (s *Service) Loaded() <-chan struct{} { return s.Channels.Loaded() }

// Needed lists the data addresses of gateways that the network must be able to reach.
func (s *Service) Needed() []diagnosis.Needed {
	return append(s.sources.registry.Needed(Name), s.egress.Needed(Name)...)
}

// bounds returns the limits of an egress gateway.
func (s *Service) bounds(a *egressGateway) bounds {
	st := a.State()
	return bounds{viewerLimit(&st), capacityAt(s.core, a, s.egress.List()), s.rate}
}

// room returns how many more viewers a gateway takes if each of them watches the channel with
// the highest bit rate.
func (s *Service) room(a *egressGateway) int {
	b := s.bounds(a)
	room := max(0, b.viewers-s.viewers.countAt(a.Name))
	if b.port.most == 0 || s.viewers.sharesPort(a.Name) {
		return room
	}
	greatest := uint64(0)
	channels := s.Channels.Items()
	for i := range channels {
		if rate := uint64(channels[i].Value.BitRate); rate <= b.port.most {
			greatest = max(greatest, rate)
		}
	}
	switch {
	case len(channels) == 0:
		return room
	case greatest == 0:
		return 0 // no channel fits
	}
	s.viewers.mu.Lock()
	defer s.viewers.mu.Unlock()
	left := b.port.most - min(b.port.most, s.viewers.taken(&b))
	return int(min(uint64(room), left/greatest))
}

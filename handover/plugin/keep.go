package plugin

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/handover/registry"
)

const (
	// settleChanges is how long changes of the network are collected before
	// rules are looked at again.
	settleChanges = 20 * time.Millisecond
	// resync is how often everything is looked at without a cause.
	resync = 5 * time.Second
	// expireInterval is how often leases are looked at.
	expireInterval = time.Second
)

// keepUp keeps rules in step with the network.
func (s *Service) keepUp(ctx context.Context) {
	s.applyPunts(ctx)
	s.resumeEarly()
	s.checkDevices()
	s.links.remember(ctx, s.net.Topology())
}

// checkDevices finds devices whose rules are not what they should be, and has
// that put right.
func (s *Service) checkDevices() {
	top := s.net.Topology()
	attached := map[string]bool{}
	for _, l := range s.registry.Leases() {
		if l.Attachment == nil || !l.Active(s.now()) {
			continue
		}
		attached[l.Device] = true
		if s.lacking(l.Device, top) {
			s.enqueue(l.Device, func(ctx context.Context) { s.reroute(ctx, l.Device) })
		} else if s.unanswered(&l) {
			s.enqueue(l.Device, func(ctx context.Context) { s.teach(ctx, l.Device) })
		}
	}
	for _, id := range s.declaredDevices() {
		if !attached[id] {
			s.enqueue(id, func(ctx context.Context) { s.sweep(ctx, id) })
		}
	}
}

// expire ends what is over: leases, floods, and what ports were silenced for.
func (s *Service) expire(ctx context.Context) {
	s.floodsOver()
	s.offencesOver()
	ended, err := s.registry.Lessor.Expire(ctx, s.now())
	if err != nil && ctx.Err() == nil {
		s.log.Warn("leases that are over cannot be ended yet", "error", err)
	}
	for _, l := range ended {
		s.expired(l)
	}
}

// expired removes the rules of a device whose lease is over.
func (s *Service) expired(l registry.Lease) {
	s.publish("lease.expired", map[string]any{"device": l.Device, "ip": l.IP})
	s.tellLeft(l.Device)
	s.enqueue(l.Device, func(ctx context.Context) { s.sweep(ctx, l.Device) })
}

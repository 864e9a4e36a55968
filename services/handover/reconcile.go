package handover

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/services/handover/registry"
)

const (
	// settleChanges is how long changes of the network are collected before rules are checked.
	settleChanges = 20 * time.Millisecond
	// resync is how often all rules are checked without a cause.
	resync = 5 * time.Second
	// expireInterval is how often leases are checked.
	expireInterval = time.Second
)

// reconcile brings rules in line with the network.
func (s *Service) reconcile(ctx context.Context) {
	s.guards.applyPunts(ctx)
	s.packets.resumePostponed()
	s.checkDevices()
	s.links.save(ctx, s.net.Topology())
}

// checkDevices finds devices whose rules are not as they should be, and queues their repair.
func (s *Service) checkDevices() {
	top := s.net.Topology()
	attached := map[string]bool{}
	for _, l := range s.registry.Leases() {
		if l.Attachment == nil || !l.Active(s.now()) {
			continue
		}
		attached[l.Device] = true
		if s.placement.needsRules(l.Device, top) {
			s.enqueue(l.Device, func(ctx context.Context) { s.placement.reroute(ctx, l.Device) })
		} else if s.guards.answersOutdated(&l) {
			s.enqueue(l.Device, func(ctx context.Context) { s.guards.updateAnswers(ctx, l.Device) })
		}
	}
	for _, id := range s.placement.devicesWithRules() {
		if !attached[id] {
			s.enqueue(id, func(ctx context.Context) { s.placement.removeDetached(ctx, id) })
		}
	}
}

// expire ends leases, floods and port silences whose time has passed.
func (s *Service) expire(ctx context.Context) {
	s.guards.expireFloods()
	s.guards.expireViolations()
	ended, err := s.registry.Lessor.Expire(ctx, s.now())
	if err != nil && ctx.Err() == nil {
		s.log.Warn("expired leases cannot be ended yet", "error", err)
	}
	for _, l := range ended {
		s.expired(l)
	}
}

// expired removes the rules of a device whose lease has expired.
func (s *Service) expired(l registry.Lease) {
	s.publish("lease.expired", map[string]any{"device": l.Device, "ip": l.IP})
	s.notifyLeft(l.Device)
	s.enqueue(l.Device, func(ctx context.Context) { s.placement.removeDetached(ctx, l.Device) })
}

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
)

const (
	// settleChanges is how long changes of the network are collected before
	// rules are looked at again.
	settleChanges = 20 * time.Millisecond
	// lookAgain is how often everything is looked at without a cause.
	lookAgain = 5 * time.Second
	// expireInterval is how often leases are looked at.
	expireInterval = time.Second
)

// keepUp keeps rules in step with the network until ctx ends.
func (s *Service) keepUp(ctx context.Context) {
	for ctx.Err() == nil {
		s.applyPunts(ctx)
		s.resumeEarly()
		s.checkDevices()
		s.rememberLinks(ctx)
		t := time.NewTimer(lookAgain)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-s.rethink:
			_ = tasks.Sleep(ctx, settleChanges)
		}
		t.Stop()
	}
}

// checkDevices finds devices whose rules are not what they should be, and has
// their lanes put that right.
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

// enqueue puts work into a device's lane. What finds no room there is found to be
// necessary again at the next look.
func (s *Service) enqueue(id string, job func(context.Context)) {
	if err := s.lanes.add(id, job); errors.Is(err, errBusy) {
		s.metrics.dropped.WithLabelValues("check").Inc()
	}
}

// lacking says whether the device's rules are not declared, or lead where there
// is no way any more.
func (s *Service) lacking(id string, top *network.Topology) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mobiles[id]
	return m == nil || !m.declared || m.err != "" || !alive(top, &m.plan)
}

// declaredDevices are those that have rules, but for visitors that are expected.
func (s *Service) declaredDevices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for id, m := range s.mobiles {
		if m.declared && !m.expected {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// sweep removes the rules of a device that is nowhere.
func (s *Service) sweep(ctx context.Context, id string) {
	l, ok := s.registry.Lease(id)
	m := s.mobileOf(id)
	if ok && l.Attachment != nil && l.Active(s.now()) || m.expected || !m.declared {
		return
	}
	if err := s.detach(ctx, id, l.IP, nil, "it is nowhere"); err != nil && ctx.Err() == nil {
		s.log.Warn("rules of a device that is nowhere are still there", "device", id, "error", err)
	}
}

// reroute gives a device rules for the network as it is now.
func (s *Service) reroute(ctx context.Context, id string) {
	if err := s.replan(ctx, id, "the network has changed"); err != nil && ctx.Err() == nil {
		m := s.mobileOf(id)
		s.change(func() {
			if m.err != err.Error() {
				s.log.Warn("device has no way to the roots", "device", id, "error", err)
			}
			m.err = err.Error()
		})
	}
}

// replan has a device served, and its addresses answered for, where it is.
func (s *Service) replan(ctx context.Context, id, cause string) error {
	err := s.serve(ctx, id, cause)
	if err == nil {
		s.teach(ctx, id)
	}
	return err
}

// serve plans anew for where the device is, and writes what differs.
func (s *Service) serve(ctx context.Context, id, cause string) error {
	d, known := s.registry.Device(id)
	l, leased := s.registry.Lease(id)
	if !known || !leased || l.Attachment == nil || !l.Active(s.now()) {
		return nil
	}
	if l.Attachment.Peer == "" && !d.Has(l.Attachment.MAC) {
		if err := s.registry.SetAttachment(ctx, id, nil); err != nil {
			return err
		}
		return s.detach(ctx, id, l.IP, l.Attachment, "its MAC address was taken from it")
	}
	t := s.newTrip(d, l.IP, KindReroute, cause, s.now())
	t.rec.To = spotOf(l.Attachment)
	s.setVia(t.m, d)
	top := s.net.Topology()
	if !top.Has(l.Attachment.At.Switch) {
		return fmt.Errorf("edge switch %v: %w", l.Attachment.At.Switch, network.ErrSwitchDown)
	}
	p, left, err := s.planHere(t, &l)
	if err != nil {
		return err
	}
	if t.m.declared && compare(t.m.rules, p.Program.Rules) == (Changes{}) {
		s.change(func() { t.m.plan, t.m.err = p, "" })
		return nil
	}
	s.describe(t, &p)
	if !t.m.declared {
		return s.restore(ctx, t, p, left)
	}
	if err = s.follow(ctx, t, route.Steps(t.m.plan, p)); err == nil && left == nil {
		s.change(t.m.dropSecond)
	}
	s.ended(t, err)
	return err
}

// setVia finds by which roots a device's packets come, for one that the service
// has not yet dealt with.
func (s *Service) setVia(m *mobile, d registry.Device) {
	if m.declared {
		return
	}
	via := d.Home
	if s.domain != nil {
		if up, ok := s.domain.Upstream(d.ID); ok {
			via = up
		}
	}
	s.change(func() { m.via = via })
}

// expireLeases ends leases whose time is over until ctx ends.
func (s *Service) expireLeases(ctx context.Context) {
	tick := time.NewTicker(expireInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.floodsOver()
		s.offencesOver()
		ended, err := s.registry.Expire(ctx, s.now())
		if err != nil && ctx.Err() == nil {
			s.log.Warn("leases that are over cannot be ended yet", "error", err)
		}
		for _, l := range ended {
			s.expired(l)
		}
	}
}

// expired removes the rules of a device whose lease is over.
func (s *Service) expired(l registry.Lease) {
	s.publish("lease.expired", map[string]any{"device": l.Device, "ip": l.IP})
	s.tellLeft(l.Device)
	s.enqueue(l.Device, func(ctx context.Context) { s.sweep(ctx, l.Device) })
}

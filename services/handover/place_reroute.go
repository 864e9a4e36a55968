package handover

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// needsRules reports whether the device has no declared rules, or rules along a path that no
// longer exists.
func (s *placement) needsRules(id string, top *network.Topology) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mobiles[id]
	return m == nil || m.state == detached || m.err != "" || !intact(top, &m.plan)
}

// devicesWithRules returns the devices that have rules, without expected visitors.
func (s *placement) devicesWithRules() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for id, m := range s.mobiles {
		if m.state != detached && m.state != expected {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// removeDetached removes the rules of a device that has no place any more.
func (s *placement) removeDetached(ctx context.Context, id string) {
	l, ok := s.registry.Lease(id)
	m := s.mobileOf(id)
	if ok && l.Attachment != nil && l.Active(s.now()) || m.state == expected || m.state == detached {
		return
	}
	if err := s.detach(ctx, id, l.IP, nil, "the device has no place any more"); err != nil && ctx.Err() == nil {
		s.log.Warn("rules of a device without a place could not be removed", "device", id, "error", err)
	}
}

// reroute gives a device rules for the network as it is now.
func (s *placement) reroute(ctx context.Context, id string) {
	if err := s.replan(ctx, id, "the network has changed"); err != nil && ctx.Err() == nil {
		m := s.mobileOf(id)
		s.change(func() {
			if m.err != err.Error() {
				s.log.Warn("device has no path to the border ports", "device", id, "error", err)
			}
			m.err = err.Error()
		})
	}
}

// replan serves a device where it is, and updates what switches answer about its addresses.
func (s *placement) replan(ctx context.Context, id, cause string) error {
	err := s.serve(ctx, id, cause)
	if err == nil {
		s.served(ctx, id)
	}
	return err
}

// serve makes a new plan for where the device is, and writes the rules that differ.
func (s *placement) serve(ctx context.Context, id, cause string) error {
	d, known := s.registry.Device(id)
	l, leased := s.registry.Lease(id)
	if !known || !leased || l.Attachment == nil || !l.Active(s.now()) {
		return nil
	}
	if l.Attachment.Peer == "" && !d.Has(l.Attachment.MAC) {
		if err := s.registry.Lessor.SetAttachment(ctx, id, nil); err != nil {
			return err
		}
		return s.detach(ctx, id, l.IP, l.Attachment, "the device no longer has the MAC address that it used")
	}
	op := s.newOperation(d, l.IP, KindReroute, cause, s.now())
	op.record.To = spotOf(l.Attachment)
	s.setVia(op.mobile, d)
	top := s.net.Topology()
	if !top.Has(l.Attachment.At.Switch) {
		return fmt.Errorf("edge switch %v: %w", l.Attachment.At.Switch, network.ErrSwitchDown)
	}
	p, left, err := s.planCurrent(op, &l)
	if err != nil {
		return err
	}
	if op.mobile.state != detached && diffRules(op.mobile.rules, p.Program.Rules) == (Changes{}) {
		s.change(func() { op.mobile.plan, op.mobile.err = p, "" })
		return nil
	}
	s.recordPlan(op, &p)
	if op.mobile.state == detached {
		return s.restore(ctx, op, p, left)
	}
	if err = s.applySteps(ctx, op, route.Steps(op.mobile.plan, p)); err == nil && left == nil {
		s.change(func() { op.mobile.advance(stepSettle) })
	}
	s.finish(op, err)
	return err
}

// setVia sets the border ports by which a device's packets come and go, if the device has no rules
// yet.
func (s *placement) setVia(m *mobile, d registry.Device) {
	if m.state != detached {
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

package plugin

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/network"
)

// lacking says whether the device's rules are not declared, or lead where there
// is no way any more.
func (s *placement) lacking(id string, top *network.Topology) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mobiles[id]
	return m == nil || m.state == nowhere || m.err != "" || !alive(top, &m.plan)
}

// declaredDevices are those that have rules, but for visitors that are expected.
func (s *placement) declaredDevices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for id, m := range s.mobiles {
		if m.state != nowhere && m.state != awaited {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// sweep removes the rules of a device that is nowhere.
func (s *placement) sweep(ctx context.Context, id string) {
	l, ok := s.registry.Lease(id)
	m := s.mobileOf(id)
	if ok && l.Attachment != nil && l.Active(s.now()) || m.state == awaited || m.state == nowhere {
		return
	}
	if err := s.detach(ctx, id, l.IP, nil, "it is nowhere"); err != nil && ctx.Err() == nil {
		s.log.Warn("rules of a device that is nowhere are still there", "device", id, "error", err)
	}
}

// reroute gives a device rules for the network as it is now.
func (s *placement) reroute(ctx context.Context, id string) {
	if err := s.replan(ctx, id, "the network has changed"); err != nil && ctx.Err() == nil {
		m := s.mobileOf(id)
		s.change(func() {
			if m.err != err.Error() {
				s.log.Warn("device has no way to the border ports", "device", id, "error", err)
			}
			m.err = err.Error()
		})
	}
}

// replan has a device served, and its addresses answered for, where it is.
func (s *placement) replan(ctx context.Context, id, cause string) error {
	err := s.serve(ctx, id, cause)
	if err == nil {
		s.served(ctx, id)
	}
	return err
}

// serve plans anew for where the device is, and writes what differs.
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
	if t.m.state != nowhere && compare(t.m.rules, p.Program.Rules) == (Changes{}) {
		s.change(func() { t.m.plan, t.m.err = p, "" })
		return nil
	}
	s.describe(t, &p)
	if t.m.state == nowhere {
		return s.restore(ctx, t, p, left)
	}
	if err = s.follow(ctx, t, route.Steps(t.m.plan, p)); err == nil && left == nil {
		s.change(func() { t.m.to(stepSettle) })
	}
	s.ended(t, err)
	return err
}

// setVia finds by which border ports a device's packets come, for one that the service
// has not yet dealt with.
func (s *placement) setVia(m *mobile, d registry.Device) {
	if m.state != nowhere {
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

package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// needsRules reports whether the device has no declared rules, has rules along a path that no longer
// exists, or has an error from an earlier attempt to serve it.
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

// replan serves a device at its present place, and updates the ARP answers of switches about it.
func (s *placement) replan(ctx context.Context, id, cause string) error {
	err := s.serve(ctx, id, cause)
	if err == nil {
		s.served(ctx, id)
	}
	return err
}

// serve makes a new plan for the device's present place, and writes the rules that differ.
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

const (
	// tentativeAge is how recent a device's last move must be at a start for the move to be
	// tentative. A device that moved earlier has asked again since, or given up.
	tentativeAge = 5 * time.Minute
	// tentativeTime is how long after a start both places of a tentative move are served. In that
	// time a daemon has joined a network, or has asked to join it a second time.
	tentativeTime = 30 * time.Second
)

// previousPlace returns the place where a seamless device was before its last move while that move
// is tentative, or nil. A move is tentative if it was made just before this controller started and
// nothing has been heard from the device since. A controller that is killed may have stored the
// move without answering; then the device still sends from its previous place.
func (s *placement) previousPlace(op *operation, l *registry.Lease) *registry.Attachment {
	if l.Left == nil || l.Attachment == nil || s.registry.ClassOf(op.device).Policy != registry.PolicySeamless {
		return nil
	}
	since := l.Attachment.Since
	if !since.Before(s.started) || s.now().Sub(since) > tentativeAge {
		return nil
	}
	if m := op.mobile; m.state != detached && (m.state != leaving || m.second.place != placeOf(l.Left)) {
		return nil // the tentative time has passed
	}
	return l.Left
}

// planCurrent returns a plan for a device's present place and, while its last move is tentative, also
// for its previous place, which it then returns. The switch of the previous place may be the last to
// connect. Until it has connected, or the service has stopped waiting for switches, planCurrent returns
// an error. The rules that are in the switches already serve both places meanwhile.
func (s *placement) planCurrent(op *operation, l *registry.Lease) (p route.Plan, previous *registry.Attachment, err error) {
	if previous = s.previousPlace(op, l); previous != nil {
		p, err = s.plan(op, placeOf(previous), placeOf(l.Attachment))
		switch {
		case err == nil && p.Bicast():
			return p, previous, nil
		case errors.Is(err, route.ErrUnreachable) && !s.topologyHasSettled():
			return p, nil, fmt.Errorf("its place before its last move: %w", err)
		}
	}
	p, err = s.plan(op, placeOf(l.Attachment))
	return p, nil, err
}

// topologyHasSettled reports whether the service has stopped waiting for switches after its start.
func (s *placement) topologyHasSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topologySettled
}

// confirmMove ends a tentative move: the device has asked again at its new place. The old place is
// served for another overlap, because packets that the device sends there until it gets the answer may
// still be in flight.
func (s *placement) confirmMove(id string) {
	m := s.mobileOf(id)
	x := m.second
	d, _ := s.registry.Device(id)
	overlap := s.registry.ClassOf(d).Overlap
	if m.state != leaving || x.until.Before(s.now().Add(overlap)) {
		return
	}
	s.setSecond(id, m, stepMove, &second{place: x.place, peer: x.peer, cause: x.cause}, overlap)
}

// restore declares the rules of a device that has none in the ledger, whatever rules the switches have.
// A switch gets its rules after the switches between it and the device have theirs.
func (s *placement) restore(ctx context.Context, op *operation, p route.Plan, left *registry.Attachment) error {
	if err := s.declare(ctx, op, p, p.Program.Rules, rule.ApplyOptions{Atomic: true, Waves: route.Inward(p)}, true); err != nil {
		return err
	}
	if left == nil {
		s.change(func() { op.mobile.advance(stepSettle) })
		return nil
	}
	s.setSecond(op.id, op.mobile, stepMove, &second{place: placeOf(left), cause: "the start of the controller"}, tentativeTime)
	return nil
}

package handover

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// prepare prepares a place for a device that is elsewhere. A device of a seamless class gets its
// packets at both places from now on. For others only the branch without its join is written,
// which costs no traffic. The preparation ends after the timeout; zero starts no timer.
func (s *placement) prepare(ctx context.Context, op *operation, from, to route.Place, peer string, timeout time.Duration) error {
	x := &second{place: to, peer: peer, cause: op.record.Cause}
	if op.mobile.hasPrepared() && op.mobile.second.place == to {
		if timeout > 0 {
			s.setSecond(op.id, op.mobile, stepServe, x, timeout) // for longer
		}
		return nil
	}
	bicast, err := s.branch(ctx, op, from, to)
	if err == nil {
		op.record.Bicast = bicast
		how := stepPrepare
		if bicast {
			how = stepBicast
		}
		s.setSecond(op.id, op.mobile, how, x, timeout)
	}
	s.finish(op, err)
	return err
}

// branch writes the rules of the path to a second place, and reports whether packets go there.
func (s *placement) branch(ctx context.Context, op *operation, from, to route.Place) (bool, error) {
	if op.mobile.state == detached || s.registry.ClassOf(op.device).Policy == registry.PolicySeamless {
		p, err := s.plan(op, from, to)
		if err != nil {
			return false, err
		}
		if p.Fallback == "" {
			s.recordPlan(op, &p)
			return true, s.applySteps(ctx, op, route.Steps(op.mobile.plan, p))
		}
		op.record.Fallback = p.Fallback
		op.record.Policy = string(registry.PolicySaving)
		if op.mobile.state == detached {
			return false, s.applySteps(ctx, op, route.Steps(op.mobile.plan, p))
		}
	}
	p, err := s.plan(op, to)
	if err != nil {
		return false, err
	}
	s.recordPlan(op, &p)
	return false, s.declare(ctx, op, op.mobile.plan, withBranch(op.mobile.plan.Program.Rules, p.Program.Rules), rule.ApplyOptions{Atomic: true}, true)
}

// prepareAt prepares a port for a device.
func (s *placement) prepareAt(ctx context.Context, id string, at network.PortRef, mac openflow.MAC, cause string, timeout time.Duration) error {
	return s.queue.Do(ctx, id, func(ctx context.Context) error {
		d, known := s.registry.Device(id)
		l, leased := s.registry.Lease(id)
		switch {
		case !known:
			return errUnknown
		case !leased || !l.Active(s.now()) || l.Attachment == nil:
			return errNowhere
		case l.Attachment.At == at && (mac.IsZero() || l.Attachment.MAC == mac):
			return errThere
		}
		if mac.IsZero() {
			mac = l.Attachment.MAC
		}
		if mac.IsZero() {
			mac = d.HomeMAC()
		}
		op := s.newOperation(d, l.IP, KindPrepare, cause, s.now())
		s.setVia(op.mobile, d)
		op.record.From, op.record.To = spotOf(l.Attachment), &Spot{Port: Port{at}, MAC: mac}
		return s.prepare(ctx, op, placeOf(l.Attachment), route.Place{At: at, MAC: mac}, "", timeout)
	})
}

// setupTime returns how long it takes to prepare a port: the slowest switch of the path has to
// confirm its rules, and a packet has to travel down the path.
func (s *placement) setupTime(d registry.Device, via string, at network.PortRef) (time.Duration, error) {
	top := s.net.Topology()
	p, err := route.NewPlan(top, s.wantAt(d, s.ipOf(d), via, route.Place{At: at, MAC: d.HomeMAC()}))
	if err != nil {
		return 0, fmt.Errorf("path to %v: %w", at, err)
	}
	c, l := route.BranchLatencies(top, p.Path, s.net.ControlLatency)
	return route.WaveLatency(c, l), nil
}

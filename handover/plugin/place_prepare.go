package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// prepare makes a place ready for a device that is elsewhere. One of a seamless
// class gets its packets at both from now on; for others the branch is laid but
// for its join, which costs no traffic. It is taken back after a time; zero leaves
// that to somebody else.
func (s *placement) prepare(ctx context.Context, t *trip, from, to route.Place, peer string, timeout time.Duration) error {
	x := &second{place: to, peer: peer, cause: t.rec.Cause}
	if t.m.prepared() && t.m.second.place == to {
		if timeout > 0 {
			s.setSecond(t.id, t.m, stepServe, x, timeout) // for longer
		}
		return nil
	}
	bicast, err := s.branch(ctx, t, from, to)
	if err == nil {
		t.rec.Bicast = bicast
		how := stepLay
		if bicast {
			how = stepCopy
		}
		s.setSecond(t.id, t.m, how, x, timeout)
	}
	s.ended(t, err)
	return err
}

// branch makes the way to a second place, and says whether packets go there.
func (s *placement) branch(ctx context.Context, t *trip, from, to route.Place) (bool, error) {
	if t.m.state == nowhere || s.registry.ClassOf(t.device).Policy == registry.PolicySeamless {
		p, err := s.plan(t, from, to)
		if err != nil {
			return false, err
		}
		if p.Fallback == "" {
			s.describe(t, &p)
			return true, s.follow(ctx, t, route.Steps(t.m.plan, p))
		}
		t.rec.Fallback = p.Fallback
		t.rec.Policy = string(registry.PolicySaving)
		if t.m.state == nowhere {
			return false, s.follow(ctx, t, route.Steps(t.m.plan, p))
		}
	}
	p, err := s.plan(t, to)
	if err != nil {
		return false, err
	}
	s.describe(t, &p)
	return false, s.declare(ctx, t, t.m.plan, lay(t.m.plan.Program.Rules, p.Program.Rules), rule.ApplyOptions{Atomic: true}, true)
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
		t := s.newTrip(d, l.IP, KindPrepare, cause, s.now())
		s.setVia(t.m, d)
		t.rec.From, t.rec.To = spotOf(l.Attachment), &Spot{Port: Port{at}, MAC: mac}
		return s.prepare(ctx, t, placeOf(l.Attachment), route.Place{At: at, MAC: mac}, "", timeout)
	})
}

// setupTime is how long it takes to prepare a port: the slowest switch of the way
// there has to confirm its rules, and a packet has to travel down.
func (s *placement) setupTime(d registry.Device, via string, at network.PortRef) (time.Duration, error) {
	top := s.net.Topology()
	p, err := route.Make(top, s.want(d, s.ipOf(d), via, route.Place{At: at, MAC: d.HomeMAC()}))
	if err != nil {
		return 0, fmt.Errorf("way to %v: %w", at, err)
	}
	c, l := route.Branch(top, p.Path, s.net.ControlLatency)
	return route.Waited(c, l), nil
}

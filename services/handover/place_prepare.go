package handover

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/predict"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// prepare prepares a place for a device that is elsewhere. A device of a seamless class gets its
// packets at both places from now on. For other classes, prepare writes only the rules beyond the
// switch where the new path leaves the old one. They send no packets to the new place yet, so they
// cost no traffic. The preparation ends after the timeout; zero starts no timer.
func (s *placement) prepare(ctx context.Context, op *operation, from, to route.Place, peer string, timeout time.Duration) error {
	x := &second{place: to, peer: peer, cause: op.record.Cause}
	if op.mobile.hasPrepared() && op.mobile.second.place == to {
		if timeout > 0 {
			s.setSecond(op.id, op.mobile, stepServe, x, timeout) // extends the preparation
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

// predictor predicts where devices go next, and prepares these places.
type predictor struct {
	*core
	placement *placement
	coverage  *predict.Coverage // nil if none is configured
	plane     *predict.Plane    // nil if the coverage has no origin
}

// loadCoverage builds the configured coverage.
func (s *predictor) loadCoverage() error {
	if len(s.settings.Cells) == 0 {
		return nil
	}
	cells := make([]predict.Cell, len(s.settings.Cells))
	for i, c := range s.settings.Cells {
		cells[i] = c.Cell
	}
	var err error
	if s.coverage, err = predict.NewCoverage(cells); err != nil || s.settings.Origin == nil {
		return err
	}
	plane, err := predict.NewPlane(*s.settings.Origin)
	s.plane = &plane
	return err
}

// macAt returns the MAC address that a device uses in a cell, or zero for the one it uses now.
func (s *predictor) macAt(id, cell string) openflow.MAC {
	d, _ := s.registry.Device(id)
	for _, c := range s.settings.Cells {
		if c.Name == cell && c.Interface > 0 && c.Interface <= len(d.MACs) {
			return d.MACs[c.Interface-1]
		}
	}
	return openflow.MAC{}
}

// motionOf converts a reported position into a point on the plane of the coverage.
func (s *predictor) motionOf(x, y float64, lat, lon *float64) (predict.Motion, error) {
	if lat == nil && lon == nil {
		return predict.Motion{At: predict.Point{X: x, Y: y}}, nil
	}
	if lat == nil || lon == nil {
		return predict.Motion{}, fmt.Errorf("latitude and longitude belong together")
	}
	if s.plane == nil {
		return predict.Motion{}, fmt.Errorf("the coverage has no origin: give x and y, or set handover.origin")
	}
	p, err := s.plane.Point(predict.Geo{Lat: *lat, Lon: *lon})
	return predict.Motion{At: p}, err
}

// moved stores a report about a device's movement, predicts where the device goes, and prepares
// the place when it is time.
func (s *predictor) moved(d registry.Device, m predict.Motion) (predict.Choice, error) {
	if s.coverage == nil {
		return predict.Choice{}, errNoCoverage
	}
	l, _ := s.registry.Lease(d.ID)
	var current network.PortRef
	if l.Active(s.now()) && l.Attachment != nil {
		current = l.Attachment.At
	}
	s.mu.Lock()
	old := s.placement.motions[d.ID]
	s.mu.Unlock()
	before := predict.Choice{}
	if old != nil {
		before = old.choice
	}
	choice, err := s.predict(d, m, current, before)
	if err != nil {
		return predict.Choice{}, err
	}
	now := &motion{report: m, choice: choice}
	s.mu.Lock()
	if old != nil && old.timer != nil {
		old.timer.Stop()
	}
	s.placement.motions[d.ID] = now
	if !choice.None() && !choice.Prepare {
		// It is too early to prepare. A later report may change the prediction.
		now.timer = time.AfterFunc(choice.PrepareAt.Sub(s.now()), func() { s.due(d, m, current, choice) })
	}
	s.mu.Unlock()
	if choice.Prepare {
		s.prepareChoice(d.ID, choice)
	}
	return choice, nil
}

// predict returns where a device goes. It asks the coverage twice, because how early a place has
// to be prepared depends on which place it is.
func (s *predictor) predict(d registry.Device, m predict.Motion, current network.PortRef, before predict.Choice) (predict.Choice, error) {
	now := s.now()
	choice, err := s.coverage.Predict(m, current, before, 0, now, s.settings.Predict)
	if err != nil || choice.None() {
		return choice, err
	}
	s.mu.Lock()
	via := ""
	if x := s.placement.mobiles[d.ID]; x != nil {
		via = x.via
	}
	s.mu.Unlock()
	setup, err := s.placement.setupTime(d, via, choice.Next)
	if err != nil {
		setup = 0 // there may be a path again by then
	}
	return s.coverage.Predict(m, current, before, setup, now, s.settings.Predict)
}

// due prepares a place whose time has come without another report.
func (s *predictor) due(d registry.Device, m predict.Motion, current network.PortRef, before predict.Choice) {
	s.start(func(context.Context) {
		choice, err := s.predict(d, m, current, before)
		if err == nil && !choice.None() && choice.Next == before.Next {
			s.prepareChoice(d.ID, choice)
		}
	})
}

// prepareChoice prepares a predicted place, for the time until the device arrives plus the usual
// timeout. A place in another domain is prepared by that domain.
func (s *predictor) prepareChoice(id string, choice predict.Choice) {
	timeout := max(choice.Enter.Sub(s.now()), 0) + s.settings.PrepareTimeout
	s.start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.settings.RequestTimeout)
		defer cancel()
		err := s.prepareNext(ctx, id, choice, timeout)
		s.change(func() {
			if m := s.placement.motions[id]; m != nil {
				m.err = ""
				if err != nil {
					m.err = err.Error()
				}
			}
		})
	})
}

// prepareNext prepares a predicted place, or announces the device to the neighbour that covers
// it.
func (s *predictor) prepareNext(ctx context.Context, id string, choice predict.Choice, timeout time.Duration) error {
	mac := s.macAt(id, choice.Name)
	border, _ := s.borderAt(choice.Next)
	if border.Peer == "" {
		return s.placement.prepareAt(ctx, id, choice.Next, mac, "prediction: "+choice.Name, timeout)
	}
	if s.domain == nil {
		return domain.ErrNoNeighbour
	}
	s.mu.Lock()
	m := s.placement.motions[id].report
	s.mu.Unlock()
	return s.origin.Announce(ctx, id, border.Peer, domain.Heading{MAC: mac, Motion: &domain.Motion{
		X: m.At.X, Y: m.At.Y, Speed: m.Speed, Heading: m.Heading, Time: m.Time,
	}})
}

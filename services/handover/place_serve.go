package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// operation is a change of where a device is served, with its record.
type operation struct {
	id     string
	device registry.Device
	ip     netip.Addr
	mobile *mobile
	record Record
	// arrived is when the message that caused the operation arrived.
	arrived time.Time
	// written, if not nil, is closed once the rules are in the switches, before old ones are
	// removed.
	written chan struct{}
	// keepOld keeps the rules of paths that the device has left, because packets are still in
	// flight there. The end of the second place removes them.
	keepOld bool
	// linger is how long rules to the old place stay for packets in flight there.
	linger time.Duration
	// final holds the rules by which the device will later be served at its new place alone.
	final []network.Rule
}

// newOperation returns an operation whose record starts at the given time of arrival.
func (s *placement) newOperation(d registry.Device, ip netip.Addr, kind Kind, cause string, arrived time.Time) *operation {
	return &operation{
		id: d.ID, device: d, ip: ip, mobile: s.mobileOf(d.ID), arrived: arrived,
		record: Record{
			Device: d.ID, IP: ip, Kind: kind, Cause: cause, Started: arrived, Result: ResultPending,
			Policy: string(s.registry.ClassOf(d).Policy),
		},
	}
}

// confirmed records that the rules are in the switches.
func (op *operation) confirmed() {
	if op.written != nil && !op.isWritten() {
		op.record.Parts.Trigger = Duration(time.Since(op.arrived))
		close(op.written)
	}
}

// isWritten reports whether the rules are in the switches.
func (op *operation) isWritten() bool {
	select {
	case <-op.written:
		return true
	default:
		return false
	}
}

// key returns the key of the device's rules in the ledger.
func key(id string) string { return "device/" + id }

// plan returns a plan that serves the device at places.
func (s *placement) plan(op *operation, places ...route.Place) (route.Plan, error) {
	return route.NewPlan(s.net.Topology(), s.wantAt(op.device, op.ip, op.mobile.via, places...))
}

// applySteps declares the rules of all steps, one after the other.
func (s *placement) applySteps(ctx context.Context, op *operation, steps []route.Step) error {
	for i, step := range steps {
		how := rule.ApplyOptions{Atomic: true, Waves: step.Waves}
		rules := step.Plan.Program.Rules
		if op.keepOld {
			rules = withOldPath(withFinal(rules, op.final), op.mobile.rules)
		}
		last := i == len(steps)-1
		if last {
			how.Linger = op.linger
		}
		if err := s.declare(ctx, op, step.Plan, rules, how, last); err != nil {
			return err
		}
		if step.Settle && !last {
			select {
			case <-time.After(settling):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// declare replaces the device's rules by rules. If that fails, the device keeps its previous rules.
// last marks the last step of an operation; its confirmation confirms the operation.
func (s *placement) declare(ctx context.Context, op *operation, p route.Plan, rules []network.Rule, how rule.ApplyOptions, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.settings.RulesTimeout)
	defer cancel()
	began := time.Now()
	var tf time.Duration
	written := func() {
		tf = time.Since(began)
		if last {
			op.confirmed()
		}
	}
	how.AllowDown, how.Written = s.anyDown(op.mobile.rules), written
	s.change(func() { op.mobile.writing = rules })
	err := s.rules.Apply(ctx, key(op.id), rule.Program{Rules: rules}, how)
	op.record.Parts.Tf += Duration(cmp.Or(tf, time.Since(began)))
	if err != nil {
		s.change(func() { op.mobile.writing = nil })
		return err
	}
	op.record.Changes.add(diffRules(op.mobile.rules, rules))
	// One change under the lock: otherwise a reader in between would take the device for detached.
	s.change(func() {
		op.mobile.plan, op.mobile.rules, op.mobile.writing, op.mobile.err = p, rules, nil, ""
		op.mobile.advance(stepServe)
	})
	return nil
}

// anyDown reports whether a switch with one of the rules is not connected. The ledger removes rules
// from such a switch when it connects again.
func (s *placement) anyDown(rules []network.Rule) bool {
	top := s.net.Topology()
	return slices.ContainsFunc(rules, func(r network.Rule) bool { return !top.Has(r.Switch) })
}

// serveAt serves the device at a place to which it has come. It returns when packets reach the
// device there.
func (s *placement) serveAt(ctx context.Context, op *operation, from, to *registry.Attachment) error {
	op.record.From, op.record.To = spotOf(from), spotOf(to)
	class := s.registry.ClassOf(op.device)
	target := placeOf(to)
	if op.mobile.hasPrepared() && op.mobile.second.place == target {
		op.record.Prepared = true
	}
	if class.Policy == registry.PolicySeamless && op.mobile.state != detached && from != nil {
		done, err := s.serveSeamless(ctx, op, placeOf(from), target, class.Overlap)
		if done || err != nil {
			return err
		}
		op.record.Policy = string(registry.PolicySaving)
	}
	return s.serveSaving(ctx, op, target, from == nil || from.MAC == to.MAC && from.Peer == "")
}

// serveSeamless sends packets to both places for a while, and reports whether that was possible.
func (s *placement) serveSeamless(ctx context.Context, op *operation, from, to route.Place, overlap time.Duration) (bool, error) {
	if from == to {
		return false, nil
	}
	p, err := s.plan(op, from, to)
	switch {
	case err != nil:
		op.record.Fallback = err.Error()
		return false, nil
	case p.Fallback != "":
		op.record.Fallback = p.Fallback
		return false, nil
	}
	alone, err := s.plan(op, to)
	if err != nil {
		return false, err
	}
	s.recordPlan(op, &p)
	op.keepOld, op.final = true, alone.Program.Rules
	if sameWant(&op.mobile.plan, &p) && op.mobile.plan.Bicast() {
		op.confirmed() // the prepared place has these rules already
	} else if err := s.applySteps(ctx, op, route.Steps(op.mobile.plan, p)); err != nil {
		return false, err
	}
	op.record.Bicast = true
	s.setSecond(op.id, op.mobile, stepMove, &second{place: from}, overlap)
	return true, nil
}

// sameWant reports whether two plans serve the same places in the same way.
func sameWant(a, b *route.Plan) bool {
	x, y := a.Want(), b.Want()
	return x.IP == y.IP && x.Home == y.Home && slices.Equal(x.Places, y.Places) && slices.Equal(x.Borders, y.Borders)
}

// serveSaving switches over to one place. left is set if the device is no longer at its old place: it
// had none, or has moved with the same interface. Then the switch-over is made as fast as possible.
// Otherwise it is made without loss.
func (s *placement) serveSaving(ctx context.Context, op *operation, to route.Place, left bool) error {
	p, err := s.plan(op, to)
	if err != nil {
		return err
	}
	s.recordPlan(op, &p)
	c, l := route.BranchLatencies(s.net.Topology(), route.Compare(op.mobile.plan, p).Branch, s.net.ControlLatency)
	if left {
		if m := route.Latency(c, l); len(m) > 0 {
			op.record.Parts.Model = Duration(m[len(m)-1])
		}
		// Nobody at the old place can lose packets, so no switch has to wait for a confirmation
		// before it gets its rules.
		err = s.declare(ctx, op, p, p.Program.Rules, rule.ApplyOptions{Waves: route.Burst(op.mobile.plan, p)}, true)
	} else {
		op.record.Parts.Model = Duration(route.WaveLatency(c, l))
		op.linger = s.inFlightTime(op.mobile.plan.Path)
		err = s.applySteps(ctx, op, route.Steps(op.mobile.plan, p))
	}
	if err == nil {
		s.change(func() { op.mobile.advance(stepSettle) })
	}
	return err
}

// recordPlan writes a plan into the record.
func (s *placement) recordPlan(op *operation, p *route.Plan) {
	op.record.Path = hops(p.Path)
	if p.Bicast() {
		op.record.Join, op.record.Path = p.Join.String(), hops(p.Branch)
	} else if op.mobile.state != detached {
		if c := route.Compare(op.mobile.plan, *p); c.Join != 0 {
			op.record.Join = c.Join.String()
		}
	}
}

// setSecond changes the state by a step, and makes x the second place. A timer ends service at x after
// the given time; zero starts no timer.
func (s *placement) setSecond(id string, m *mobile, how step, x *second, after time.Duration) {
	s.change(func() {
		if m.advanceWith(how, x); after == 0 {
			return
		}
		x.until = s.now().Add(after)
		x.timer = time.AfterFunc(after, func() { s.endSecond(id, x, 0) })
	})
}

const (
	// linger is how long rules that are no longer needed stay after those that replace them are
	// confirmed. Packets are still in flight, a switch may use cached decisions after it has
	// confirmed a rule, and the device may still send from its old place. On a busy machine each
	// of these takes tenths of a second.
	linger = 800 * time.Millisecond
	// endSecondRetry is the delay after the first failed attempt to end a second place. It doubles
	// after each further failure, up to 64 times its value. endSecondTries is the number of retries.
	endSecondRetry = 100 * time.Millisecond
	endSecondTries = 50
)

// endSecond ends service at the second place x, unless another has replaced x. If that fails,
// endSecond tries again later. tries counts the failed attempts.
func (s *placement) endSecond(id string, x *second, tries int) {
	again := func(after time.Duration, tries int) {
		s.change(func() { x.timer = time.AfterFunc(after, func() { s.endSecond(id, x, tries) }) })
	}
	err := s.queue.Add(id, func(ctx context.Context) {
		m := s.mobileOf(id)
		if m.second != x {
			return
		}
		done, err := s.singleStep(ctx, id, m, x)
		switch {
		case err != nil && tries < endSecondTries:
			s.log.Warn("a device is still served at two places", "device", id, "error", err)
			s.change(func() { m.err = err.Error() })
			again(endSecondRetry<<min(tries, 6), tries+1)
		case err == nil && !done:
			again(linger, 0)
		}
	})
	if errors.Is(err, errBusy) {
		again(endSecondRetry, tries+1)
	}
}

// singleStep takes one step towards serving the device at its attachment only, and reports whether
// that was the last step. Rules are replaced in one step and deleted in a later one, so that no
// packets are lost.
func (s *placement) singleStep(ctx context.Context, id string, m *mobile, x *second) (done bool, err error) {
	d, known := s.registry.Device(id)
	l, leased := s.registry.Lease(id)
	if !known || !leased || l.Attachment == nil {
		s.change(func() { m.advance(stepSettle) })
		return true, nil
	}
	op := s.newOperation(d, l.IP, KindMove, "", s.now())
	p, err := s.plan(op, placeOf(l.Attachment))
	if err != nil {
		return false, fmt.Errorf("plan: %w", err)
	}
	for {
		steps := route.Steps(m.plan, p)
		step := steps[0]
		both := withRemaining(withFinal(step.Plan.Program.Rules, p.Program.Rules), m.rules)
		if diffRules(m.rules, both) != (Changes{}) {
			err := s.declare(ctx, op, step.Plan, both, rule.ApplyOptions{Atomic: true, Waves: step.Waves}, false)
			s.amendMove(id, m, op.record.Changes)
			return false, err
		}
		if len(steps) > 1 {
			s.change(func() { m.plan = step.Plan })
			continue
		}
		if err := s.declare(ctx, op, p, p.Program.Rules, rule.ApplyOptions{Atomic: true}, false); err != nil {
			return false, err
		}
		s.amendMove(id, m, op.record.Changes)
		s.change(func() { m.advance(stepSettle) })
		return true, nil
	}
}

// dropSecond ends service at the second place at once, without waiting for packets in flight.
func (s *placement) dropSecond(ctx context.Context, id string, m *mobile, x *second) error {
	for {
		if done, err := s.singleStep(ctx, id, m, x); done || err != nil {
			return err
		}
	}
}

// detach removes the device's rules.
func (s *placement) detach(ctx context.Context, id string, ip netip.Addr, from *registry.Attachment, cause string) error {
	m := s.mobileOf(id)
	d, _ := s.registry.Device(id)
	d.ID = id
	op := s.newOperation(d, ip, KindDetach, cause, s.now())
	op.record.From = spotOf(from)
	ctx, cancel := context.WithTimeout(ctx, s.settings.RulesTimeout)
	defer cancel()
	began := time.Now()
	err := errors.Join(s.rules.Remove(ctx, key(id)), s.rules.Remove(ctx, keyAnswer+id))
	op.record.Parts.Tf = Duration(time.Since(began))
	if err == nil {
		op.record.Changes = diffRules(m.rules, nil)
		s.change(func() {
			m.plan, m.rules, m.answers = route.Plan{}, nil, answers{}
			m.advance(stepRemove)
		})
		s.forgetMobile(id)
	}
	if op.record.Changes != (Changes{}) || err != nil {
		s.finish(op, err)
	}
	return err
}

// finish closes the record, stores it and publishes it, and returns its number.
func (s *placement) finish(op *operation, err error) uint64 {
	r := &op.record
	r.Result = ResultDone
	if err != nil {
		r.Result, r.How = ResultFailed, err.Error()
	}
	r.Parts.sum()
	r.Took = Duration(time.Since(op.arrived))
	s.mu.Lock()
	r.ID = s.history.add(*r)
	s.mu.Unlock()
	s.metrics.countRecord(r)
	s.publish("device."+kindEvents[r.Kind], r)
	args := []any{"device", r.Device, "ip", r.IP, "cause", r.Cause, "policy", r.Policy, "rules", time.Duration(r.Parts.Tf), "took", time.Duration(r.Took)}
	if r.To != nil {
		args = append(args, "to", r.To)
	}
	if err != nil {
		s.log.Warn("handover: "+string(r.Kind)+" failed", append(args, "error", err)...)
	} else {
		s.log.Info("handover: "+string(r.Kind), args...)
	}
	return r.ID
}

// amendMove adds rule changes made at the end of a move's overlap to the record of the device's
// latest move.
func (s *placement) amendMove(id string, m *mobile, c Changes) {
	if m.hasPrepared() {
		return
	}
	s.metrics.rules.WithLabelValues("modified").Add(float64(c.Modified))
	s.metrics.rules.WithLabelValues("deleted").Add(float64(c.Deleted))
	s.metrics.rules.WithLabelValues("added").Add(float64(c.Added))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.latest(func(r *Record) bool {
		if r.Device != id || r.Kind != KindMove {
			return true
		}
		r.Changes.add(c)
		r.Took = Duration(s.now().Sub(r.Started))
		return false
	})
}

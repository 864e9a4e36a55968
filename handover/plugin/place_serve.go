package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
)

// trip is a change of where a device is served, with its record.
type trip struct {
	id     string
	device registry.Device
	ip     netip.Addr
	m      *mobile
	rec    Record
	// arrived is when the message came that caused it.
	arrived time.Time
	// written, if set, is called when the rules are in the switches, before old
	// ones are removed.
	written func()
	// strays leaves rules alone of ways that the device has left, since packets are
	// still on their way there: the end of the second place removes them.
	strays bool
	// linger is how long what leads to the old place stays, for packets that are under way
	// there.
	linger time.Duration
	// later are the rules by which the device will be served at its new place alone.
	later []network.Rule
}

// newTrip begins a record.
func (s *placement) newTrip(d registry.Device, ip netip.Addr, kind Kind, cause string, arrived time.Time) *trip {
	return &trip{
		id: d.ID, device: d, ip: ip, m: s.mobileOf(d.ID), arrived: arrived,
		rec: Record{
			Device: d.ID, IP: ip, Kind: kind, Cause: cause, Started: arrived, Result: ResultPending,
			Policy: string(s.registry.ClassOf(d).Policy),
		},
	}
}

// confirmed takes note that the rules are in the switches.
func (t *trip) confirmed() {
	if t.written != nil {
		t.rec.Parts.Trigger = Duration(time.Since(t.arrived))
		t.written()
	}
}

// key is where the device's rules stand in the ledger.
func key(id string) string { return "device/" + id }

// plan plans for places.
func (s *placement) plan(t *trip, places ...route.Place) (route.Plan, error) {
	return route.Make(s.net.Topology(), s.want(t.device, t.ip, t.m.via, places...))
}

// follow takes the steps that lead to a plan.
func (s *placement) follow(ctx context.Context, t *trip, steps []route.Step) error {
	for i, step := range steps {
		how := rule.ApplyOptions{Atomic: true, Waves: step.Waves}
		rules := step.Plan.Program.Rules
		if t.strays {
			rules = keep(ahead(rules, t.later), t.m.rules)
		}
		last := i == len(steps)-1
		if last {
			how.Linger = t.linger
		}
		if err := s.declare(ctx, t, step.Plan, rules, how, last); err != nil {
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

// declare makes rules those of the device. What it had before is as it was if
// that fails. With the last step the device is served as it is to be.
func (s *placement) declare(ctx context.Context, t *trip, p route.Plan, rules []network.Rule, how rule.ApplyOptions, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.settings.RulesTimeout)
	defer cancel()
	began := time.Now()
	var tf time.Duration
	written := func() {
		tf = time.Since(began)
		if last {
			t.confirmed()
		}
	}
	how.AllowDown, how.Written = s.anyDown(t.m.rules), written
	s.change(func() { t.m.writing = rules })
	err := s.rules.Apply(ctx, key(t.id), rule.Program{Rules: rules}, how)
	t.rec.Parts.Tf += Duration(cmp.Or(tf, time.Since(began)))
	if err != nil {
		s.change(func() { t.m.writing = nil })
		return err
	}
	t.rec.Changes.add(compare(t.m.rules, rules))
	// In one change: whoever looks in between would take the device to be nowhere.
	s.change(func() { t.m.plan, t.m.rules, t.m.writing, t.m.err = p, rules, nil, ""; t.m.to(stepServe) })
	return nil
}

// anyDown says whether a switch with one of the rules is not connected: what is
// to be removed there is removed when it is back.
func (s *placement) anyDown(rules []network.Rule) bool {
	top := s.net.Topology()
	return slices.ContainsFunc(rules, func(r network.Rule) bool { return !top.Has(r.Switch) })
}

// place has the device served at a place where it has come to. It returns when
// packets reach it there.
func (s *placement) place(ctx context.Context, t *trip, from, to *registry.Attachment) error {
	t.rec.From, t.rec.To = spotOf(from), spotOf(to)
	class := s.registry.ClassOf(t.device)
	target := placeOf(to)
	if t.m.prepared() && t.m.second.place == target {
		t.rec.Prepared = true
	}
	if class.Policy == registry.PolicySeamless && t.m.state != nowhere && from != nil {
		done, err := s.placeSeamless(ctx, t, placeOf(from), target, class.Overlap)
		if done || err != nil {
			return err
		}
		t.rec.Policy = string(registry.PolicySaving)
	}
	return s.placeSaving(ctx, t, target, from == nil || from.MAC == to.MAC && from.Peer == "")
}

// placeSeamless sends to both places for a while. It is false where that is not
// possible.
func (s *placement) placeSeamless(ctx context.Context, t *trip, from, to route.Place, overlap time.Duration) (bool, error) {
	if from == to {
		return false, nil
	}
	p, err := s.plan(t, from, to)
	switch {
	case err != nil:
		t.rec.Fallback = err.Error()
		return false, nil
	case p.Fallback != "":
		t.rec.Fallback = p.Fallback
		return false, nil
	}
	alone, err := s.plan(t, to)
	if err != nil {
		return false, err
	}
	s.describe(t, &p)
	t.strays, t.later = true, alone.Program.Rules
	if sameWant(&t.m.plan, &p) && t.m.plan.Bicast() {
		t.confirmed() // as it was prepared
	} else if err := s.follow(ctx, t, route.Steps(t.m.plan, p)); err != nil {
		return false, err
	}
	t.rec.Bicast = true
	s.setSecond(t.id, t.m, stepCross, &second{place: from}, overlap)
	return true, nil
}

// sameWant says whether two plans serve the same places in the same way.
func sameWant(a, b *route.Plan) bool {
	x, y := a.Want(), b.Want()
	return x.IP == y.IP && x.Home == y.Home && slices.Equal(x.Places, y.Places) && slices.Equal(x.Borders, y.Borders)
}

// placeSaving switches over. A device that was nowhere, or comes with the same
// interface, is at no old place any more: what counts then is to be fast, else to
// lose nothing on the way.
func (s *placement) placeSaving(ctx context.Context, t *trip, to route.Place, left bool) error {
	p, err := s.plan(t, to)
	if err != nil {
		return err
	}
	s.describe(t, &p)
	c, l := route.Branch(s.net.Topology(), route.Compare(t.m.plan, p).Branch, s.net.ControlLatency)
	if left {
		if m := route.Latency(c, l); len(m) > 0 {
			t.rec.Parts.Model = Duration(m[len(m)-1])
		}
		// There is nobody at the old place to lose anything: no switch waits until
		// another, or it itself, has confirmed a part.
		err = s.declare(ctx, t, p, p.Program.Rules, rule.ApplyOptions{Waves: route.Burst(t.m.plan, p)}, true)
	} else {
		t.rec.Parts.Model = Duration(route.Waited(c, l))
		t.linger = s.underWay(t.m.plan.Path)
		err = s.follow(ctx, t, route.Steps(t.m.plan, p))
	}
	if err == nil {
		s.change(func() { t.m.to(stepSettle) })
	}
	return err
}

// describe writes a plan into the record.
func (s *placement) describe(t *trip, p *route.Plan) {
	t.rec.Path = hops(p.Path)
	if p.Bicast() {
		t.rec.Join, t.rec.Path = p.Join.String(), hops(p.Branch)
	} else if t.m.state != nowhere {
		if c := route.Compare(t.m.plan, *p); c.Join != 0 {
			t.rec.Join = c.Join.String()
		}
	}
}

// setSecond takes a step to a state with a second place, and has that ended in time; zero
// leaves that to somebody else.
func (s *placement) setSecond(id string, m *mobile, how step, x *second, after time.Duration) {
	s.change(func() {
		if m.hold(how, x); after == 0 {
			return
		}
		x.until = s.now().Add(after)
		x.timer = time.AfterFunc(after, func() { s.endSecond(id, x, 0) })
	})
}

const (
	// linger is how long rules that are not needed any more stay after those that
	// replace them are confirmed: packets are still on their way, a switch may go by
	// what it remembers after it has confirmed a rule, and the device may still send
	// from its old place. On a busy machine each of these takes tenths of a second.
	linger = 800 * time.Millisecond
	// endSecondRetry is how soon the end of a second place is tried again, at first.
	endSecondRetry = 100 * time.Millisecond
	endSecondTries = 50
)

// endSecond has the device served at one place again.
func (s *placement) endSecond(id string, x *second, tries int) {
	again := func(after time.Duration, tries int) {
		s.change(func() { x.timer = time.AfterFunc(after, func() { s.endSecond(id, x, tries) }) })
	}
	err := s.queue.Add(id, func(ctx context.Context) {
		m := s.mobileOf(id)
		if m.second != x {
			return
		}
		done, err := s.single(ctx, id, m, x)
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

// single takes one step towards serving the device only where it is, and says
// whether that was the last. What replaces a rule is written in one step, and what
// is not needed any more deleted in a later one, so that nothing is lost.
func (s *placement) single(ctx context.Context, id string, m *mobile, x *second) (done bool, err error) {
	d, known := s.registry.Device(id)
	l, leased := s.registry.Lease(id)
	if !known || !leased || l.Attachment == nil {
		s.change(func() { m.to(stepSettle) })
		return true, nil
	}
	t := s.newTrip(d, l.IP, KindMove, "", s.now())
	p, err := s.plan(t, placeOf(l.Attachment))
	if err != nil {
		return false, fmt.Errorf("plan: %w", err)
	}
	for {
		steps := route.Steps(m.plan, p)
		step := steps[0]
		both := withLeftovers(ahead(step.Plan.Program.Rules, p.Program.Rules), m.rules)
		if compare(m.rules, both) != (Changes{}) {
			err := s.declare(ctx, t, step.Plan, both, rule.ApplyOptions{Atomic: true, Waves: step.Waves}, false)
			s.amend(id, m, t.rec.Changes)
			return false, err
		}
		if len(steps) > 1 {
			s.change(func() { m.plan = step.Plan })
			continue
		}
		if err := s.declare(ctx, t, p, p.Program.Rules, rule.ApplyOptions{Atomic: true}, false); err != nil {
			return false, err
		}
		s.amend(id, m, t.rec.Changes)
		s.change(func() { m.to(stepSettle) })
		return true, nil
	}
}

// alone serves the device at once only where it is.
func (s *placement) alone(ctx context.Context, id string, m *mobile, x *second) error {
	for {
		if done, err := s.single(ctx, id, m, x); done || err != nil {
			return err
		}
	}
}

// detach removes the device's rules.
func (s *placement) detach(ctx context.Context, id string, ip netip.Addr, from *registry.Attachment, cause string) error {
	m := s.mobileOf(id)
	d, _ := s.registry.Device(id)
	d.ID = id
	t := s.newTrip(d, ip, KindDetach, cause, s.now())
	t.rec.From = spotOf(from)
	ctx, cancel := context.WithTimeout(ctx, s.settings.RulesTimeout)
	defer cancel()
	began := time.Now()
	err := errors.Join(s.rules.Remove(ctx, key(id)), s.rules.Remove(ctx, keyAnswer+id))
	t.rec.Parts.Tf = Duration(time.Since(began))
	if err == nil {
		t.rec.Changes = compare(m.rules, nil)
		s.change(func() {
			m.plan, m.rules, m.answers = route.Plan{}, nil, answers{}
			m.to(stepRemove)
		})
		s.forgetMobile(id)
	}
	if t.rec.Changes != (Changes{}) || err != nil {
		s.ended(t, err)
	}
	return err
}

// ended closes a record, and tells of it.
func (s *placement) ended(t *trip, err error) uint64 {
	r := &t.rec
	r.Result = ResultDone
	if err != nil {
		r.Result, r.How = ResultFailed, err.Error()
	}
	r.Parts.sum()
	r.Took = Duration(time.Since(t.arrived))
	s.mu.Lock()
	r.ID = s.history.add(*r)
	s.mu.Unlock()
	s.metrics.ended(r)
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

// amend adds what was changed after a move, by the end of its overlap, to the
// device's latest move.
func (s *placement) amend(id string, m *mobile, c Changes) {
	if m.prepared() {
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

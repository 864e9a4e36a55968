package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/network/rule"
)

const (
	// doubtAge is how long before a start a device may have moved for it to be in
	// doubt whether it knows: until then it has long asked again, or given up.
	doubtAge = 5 * time.Minute
	// doubtTime is for how long after a start both places are served: a daemon has
	// joined a network by then, or has asked for it a second time.
	doubtTime = 30 * time.Second
)

// doubted is the place where a seamless device was before its last move, if that was
// just before this controller started, and neither has been heard of it since. A
// controller that is killed may have stored the move and not answered; then the
// device goes on sending from where it was.
func (s *placement) doubted(t *trip, l *registry.Lease) *registry.Attachment {
	if l.Left == nil || l.Attachment == nil || s.registry.ClassOf(t.device).Policy != registry.PolicySeamless {
		return nil
	}
	since := l.Attachment.Since
	if !since.Before(s.began) || s.now().Sub(since) > doubtAge {
		return nil
	}
	if m := t.m; m.state != nowhere && (m.state != leaving || m.second.place != placeOf(l.Left)) {
		return nil // it is over
	}
	return l.Left
}

// planHere plans for where a device is and, while that is in doubt, for where it was
// as well. The switch of that place may connect last: until it has, or is not waited
// for any more, there is no plan, and what the switches have serves both places.
func (s *placement) planHere(t *trip, l *registry.Lease) (p route.Plan, left *registry.Attachment, err error) {
	if left = s.doubted(t, l); left != nil {
		p, err = s.plan(t, placeOf(left), placeOf(l.Attachment))
		switch {
		case err == nil && p.Bicast():
			return p, left, nil
		case errors.Is(err, route.ErrUnreachable) && !s.hasSettled():
			return p, nil, fmt.Errorf("where it was before its last move: %w", err)
		}
	}
	p, err = s.plan(t, placeOf(l.Attachment))
	return p, nil, err
}

// hasSettled says whether no more switches are waited for after the start.
func (s *placement) hasSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}

// resolved ends a doubt: the device has asked again where it is said to be, and what
// it sent from its old place before it has the answer is still on its way.
func (s *placement) resolved(id string) {
	m := s.mobileOf(id)
	x := m.second
	d, _ := s.registry.Device(id)
	overlap := s.registry.ClassOf(d).Overlap
	if m.state != leaving || x.until.Before(s.now().Add(overlap)) {
		return
	}
	s.setSecond(id, m, stepCross, &second{place: x.place, peer: x.peer, cause: x.cause}, overlap)
}

// returning says whether a message is of a seamless device that has not been served
// since the start as it was before. A move has to begin from there, to lose nothing. One that asks where it is said to be
// does not wait for long for a place where it may have been.
func (s *intake) returning(in incoming) bool {
	d, _ := s.whose(in.src, in.chaddr)
	l, _ := s.registry.Lease(d.ID)
	if !l.Active(s.now()) || l.Attachment == nil || l.Attachment.Peer != "" || s.registry.ClassOf(d).Policy != registry.PolicySeamless {
		return false
	}
	if in.at == l.Attachment.At && in.src == l.Attachment.MAC && s.now().Sub(in.arrived) > 2*quiet {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mobiles[d.ID]
	return !s.ready && (m == nil || m.state == nowhere)
}

// restore declares the rules of a device that has none in the ledger, whatever the
// switches have of it: each switch has what those beyond it, towards the device, need.
func (s *placement) restore(ctx context.Context, t *trip, p route.Plan, left *registry.Attachment) error {
	if err := s.declare(ctx, t, p, p.Program.Rules, rule.ApplyOptions{Atomic: true, Waves: route.Inward(p)}, true); err != nil {
		return err
	}
	if left == nil {
		s.change(func() { t.m.to(stepSettle) })
		return nil
	}
	s.setSecond(t.id, t.m, stepCross, &second{place: placeOf(left), cause: "the start of the controller"}, doubtTime)
	return nil
}

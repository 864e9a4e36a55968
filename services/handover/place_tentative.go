package handover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

const (
	// tentativeAge is how recent a device's last move must be at a start for the move to be
	// tentative. A device that moved earlier has asked again since, or given up.
	tentativeAge = 5 * time.Minute
	// tentativeTime is how long after a start both places of a tentative move are served: within
	// it a daemon has joined a network, or has asked for it a second time.
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

// planCurrent plans for where a device is and, while its last move is tentative, also for where it
// was. The switch of the previous place may connect last. Until it has connected, or is no longer
// waited for, planCurrent returns an error, and the rules in the switches serve both places.
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
// served for another overlap, because packets that the device sent there before it gets the answer
// are still in flight.
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

// awaitsPrevious reports whether a message is from a seamless device that has not been served
// since the start as it was before. A move has to begin from there to lose nothing. A device that
// asks at its stored place does not wait long for a place where it may have been.
func (s *packetHandler) awaitsPrevious(in incoming) bool {
	d, _ := s.whose(in.src, in.chaddr)
	l, _ := s.registry.Lease(d.ID)
	if !l.Active(s.now()) || l.Attachment == nil || l.Attachment.Peer != "" || s.registry.ClassOf(d).Policy != registry.PolicySeamless {
		return false
	}
	if in.at == l.Attachment.At && in.src == l.Attachment.MAC && s.now().Sub(in.arrived) > 2*quietTime {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.placement.mobiles[d.ID]
	return !s.ready && (m == nil || m.state == detached)
}

// restore declares the rules of a device that has none in the ledger, whatever the switches have.
// A switch gets its rules after those beyond it, towards the device, have theirs.
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

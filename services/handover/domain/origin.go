package domain

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/services/handover/registry"
)

// Origin implements the role of a domain that devices leave.
type Origin struct {
	*common
	// done holds the IDs of moves that were completed lately and after which no record was kept.
	done *recent
}

// Announce tells the neighbour peer that a device of this domain heads for it. It returns when both
// domains have written the rules of their branches (t1 and t2). Another announcement to the same
// neighbour, with a new heading, replaces an earlier one. An announcement to another neighbour
// withdraws the earlier one.
func (s *Origin) Announce(ctx context.Context, id, peer string, h Heading) error {
	n := s.neighbours[peer]
	if n == nil {
		return fmt.Errorf("announce %s to %q: %w", id, peer, ErrNoNeighbour)
	}
	if err := h.check(); err != nil {
		return fmt.Errorf("announce %s to %q: %w", id, peer, err)
	}
	end, err := n.lockSending(ctx, id)
	if err != nil {
		return fmt.Errorf("announce %s to %q: %w", id, peer, err)
	}
	defer end()
	// The neighbour must first get the messages in the outbox: one may say that the device is no
	// longer with it.
	if err := n.deliverLocked(ctx, id, true); err != nil {
		return fmt.Errorf("announce %s to %q: %w", id, peer, err)
	}
	r, err := s.beginOutgoing(ctx, id, peer)
	if err != nil {
		return fmt.Errorf("announce %s to %q: %w", id, peer, err)
	}
	move := r.Move.ID
	var reply Prepared
	err = n.request(ctx, KindNotify, &Notify{Visitor: r.Visitor, Move: move, Heading: h}, &reply, s.timing.Request)
	if err == nil && reply.Move != move {
		err = fmt.Errorf("%w: it is about another move", errReply)
	}
	if err != nil {
		s.abortOutgoing(ctx, id, peer, move, codeOf(err) == "")
		return fmt.Errorf("announce %s to %q: %w", id, peer, err)
	}
	if err := s.branch(ctx, id, peer, move, reply.Carry); err != nil {
		return fmt.Errorf("announce %s to %q: %w", id, peer, err)
	}
	// The neighbour answers the device's DHCP from here on. If the message does not get through
	// now it is delivered later.
	if err := n.deliverLocked(ctx, id, true); err != nil {
		n.outbox.schedule(id, s.now(), 0)
		return fmt.Errorf("announce %s to %q: tell that the branch stands: %w", id, peer, err)
	}
	return nil
}

// beginOutgoing records the move. The returned record is a copy.
func (s *Origin) beginOutgoing(ctx context.Context, id, peer string) (*Record, error) {
	unlock, err := s.records.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	known, ok := s.host.Device(id)
	if !ok {
		return nil, ErrNoDevice
	}
	r := s.records.get(id)
	if !s.mayGiveAway(r, known.Home) {
		return nil, ErrNotHere
	}
	if err := known.check(); err != nil {
		return nil, err
	}
	r = s.departing(r, known.Visitor)
	if r.Move != nil && r.Move.In {
		return nil, ErrMoving
	}
	if r.outgoing(peer) != nil && r.Move.Stage != StageExpired {
		r.Move.Deadline = s.now().Add(s.timing.Move)
	} else {
		if err := s.dropOutgoing(ctx, r, "it heads elsewhere"); err != nil {
			return nil, err
		}
		r.Move = s.newMove(peer, StageAsked)
	}
	s.put(ctx, r)
	return r, nil
}

// departing returns the record of a device that is here and will leave.
func (s *Origin) departing(r *Record, v Visitor) *Record {
	if r == nil || r.Gone {
		fresh := &Record{ID: v.LocalID(s.self), Visitor: v.clone(), Host: s.self}
		if r != nil {
			fresh.Outbox = r.Outbox
		}
		return fresh
	}
	if r.Home == s.self {
		r.Visitor = v.clone() // its class may have changed
	}
	return r
}

// dropOutgoing undoes an outgoing move here and queues a message to the neighbour.
func (s *Origin) dropOutgoing(ctx context.Context, r *Record, why string) error {
	m := r.Move
	if m == nil {
		return nil
	}
	if err := s.host.Cancel(ctx, r.ID); err != nil {
		return fmt.Errorf("take back the branch to %q: %w", m.Peer, err)
	}
	r.enqueue(Unsent{Peer: m.Peer, Kind: KindWithdraw, Move: m.ID, Reason: why})
	r.Move = nil
	s.event("withdrawn", r, map[string]any{"neighbour": m.Peer, "reason": why})
	return nil
}

// abortOutgoing ends a move that the neighbour did not accept. tell is set if the neighbour may have
// accepted it nevertheless; then the move is withdrawn by a message.
func (s *Origin) abortOutgoing(ctx context.Context, id, peer, move string, tell bool) {
	s.change(ctx, id, func(ctx context.Context, r *Record) error {
		m := r.outgoing(peer)
		if m == nil || m.ID != move || m.Stage != StageAsked {
			return errUnchanged
		}
		if tell {
			r.enqueue(Unsent{Peer: peer, Kind: KindWithdraw, Move: move, Reason: "no answer came"})
		}
		r.Move = nil
		return nil
	})
}

// branch makes this domain send the device's packets to the neighbour as well (t2), and queues the
// Ready message that says so.
func (s *Origin) branch(ctx context.Context, id, peer, move string, carry bool) error {
	return s.records.with(ctx, id, func(r *Record) error {
		if r == nil {
			return ErrNoDevice
		}
		m := r.outgoing(peer)
		if m == nil || m.ID != move {
			return ErrMoving // meanwhile the move was withdrawn, or completed
		}
		if err := s.branchTo(ctx, r, m, carry); err != nil {
			_ = s.dropOutgoing(ctx, r, "the branch could not be made") // err reports the failure
			s.put(ctx, r)
			return err
		}
		r.enqueue(Unsent{Peer: peer, Kind: KindReady, Move: move})
		s.put(ctx, r)
		s.event("announced", r, map[string]any{"neighbour": peer, "bicast": carry && r.Policy == registry.PolicySeamless})
		return nil
	})
}

// branchTo makes the origin's branch. A device with the saving policy gets no branch before it has
// arrived, and a device that is not attached has no packets to branch.
func (s *Origin) branchTo(ctx context.Context, r *Record, m *Move, carry bool) error {
	m.Carry = carry
	if known, ok := s.host.Device(r.ID); ok && known.Here && carry && r.Policy == registry.PolicySeamless {
		if err := s.host.Redirect(ctx, r.ID, m.Peer, false); err != nil {
			return fmt.Errorf("branch to %q: %w", m.Peer, err)
		}
	}
	m.Stage = StageBranched
	return nil
}

// Abandon withdraws an announcement.
func (s *Origin) Abandon(ctx context.Context, id string) error {
	err := s.records.with(ctx, id, func(r *Record) error {
		if r == nil || r.Move == nil || r.Move.In {
			return ErrNoDevice
		}
		if err := s.dropOutgoing(ctx, r, "it stays"); err != nil {
			return err
		}
		s.put(ctx, r)
		return nil
	})
	if err != nil {
		return fmt.Errorf("abandon the move of %s: %w", id, err)
	}
	return nil
}

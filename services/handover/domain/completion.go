package domain

import (
	"context"
	"errors"
	"fmt"
)

// onComplete handles the message that a device has arrived elsewhere (t4) and ends its stay here
// (t5).
func (s *Origin) onComplete(ctx context.Context, n *neighbour, in *Complete) (*struct{}, error) {
	if err := in.check(); err != nil {
		return nil, refuse(CodeMalformed, "%v", err)
	}
	id := in.localID(s.self)
	r := s.records.get(id)
	if refusal := s.mayComplete(n, in, r); refusal != nil {
		return nil, refusal
	}
	if r == nil {
		return nil, nil // an earlier message said the same, and was handled
	}
	proven := false
	if m := r.outgoing(n.Name); m != nil && m.ID == in.Move && r.needsProof(n.Name) {
		if in.Evidence == nil {
			return nil, refuse(CodeEvidence, "%s signs its requests, and none was shown", id)
		}
		if refusal := s.verify(ctx, r, *in.Evidence); refusal != nil {
			return nil, refusal
		}
		proven = true
	}
	return nil, s.withForNeighbour(ctx, id, func(r *Record) *Refusal {
		if refusal := s.mayComplete(n, in, r); refusal != nil || r == nil {
			return refusal
		}
		return s.complete(ctx, n, in, r, proven)
	})
}

// orNil keeps a nil *Refusal from becoming an error that is not nil.
func orNil(r *Refusal) error {
	if r == nil {
		return nil
	}
	return r
}

// check returns an error if the message is not valid by itself.
func (c *Complete) check() error {
	if !nameForm.MatchString(c.Host) {
		return fmt.Errorf("host %.80q: the name of a domain", c.Host)
	}
	if c.Move == "" && c.Host == c.To {
		return errors.New("host: it tells us that the device is with us")
	}
	if c.Move == "" {
		return c.Evidence.check()
	}
	return errors.Join(checkMove(c.Move), c.Evidence.check())
}

// mayComplete decides whether the neighbour may say where the device is: as the receiver of the
// move, or as the domain to which we send its packets. For a nil record it returns nil only if the
// message repeats an earlier one about a completed move.
func (s *Origin) mayComplete(n *neighbour, in *Complete, r *Record) *Refusal {
	switch {
	case in.Move != "" && s.done.has(in.Move):
		return nil
	case r == nil || r.Gone:
		return refuse(CodeUnknown, "no device %s/%s is on its way", in.Home, in.Device)
	case in.Move == "":
		if r.Downstream != n.Name {
			return refuse(CodeNotYours, "the packets of %s do not go to %q", r.ID, n.Name)
		}
		return nil
	case in.Host != n.Name:
		return refuse(CodeMalformed, "%q completes a move to %q", n.Name, in.Host)
	}
	if m := r.outgoing(n.Name); m != nil && m.ID == in.Move {
		if in.Since.Before(m.Back) {
			refusal := refuse(CodeHere, "%s has been here since it was with %q", r.ID, n.Name)
			refusal.Evidence = m.Seen
			return refusal
		}
		if m.Stage == StageAsked {
			return refuse(CodeBusy, "the branch to %q does not stand yet", n.Name)
		}
		return nil
	}
	if r.Downstream == n.Name && r.Host == n.Name {
		return nil // an earlier message said the same
	}
	return refuse(CodeUnknown, "no such move of %s to %q is under way", r.ID, n.Name)
}

// needsProof reports whether the device must prove the outgoing move to peer. A move to its home
// domain, or to the domain from which we get its packets, needs no proof: either domain can stop
// sending us the device's packets anyway.
func (r *Record) needsProof(peer string) bool {
	return r.Signed && !r.Move.Proven && peer != r.Home && peer != r.Upstream
}

// complete records that the device is with the neighbour.
func (s *Origin) complete(ctx context.Context, n *neighbour, in *Complete, r *Record, proven bool) *Refusal {
	if in.Move == "" {
		r.Host = in.Host
		r.relay(n.Name)
		s.put(ctx, r)
		return nil
	}
	m := r.outgoing(n.Name)
	if m == nil || m.ID != in.Move {
		return nil // an earlier message said the same
	}
	if r.needsProof(n.Name) && !proven {
		return refuse(CodeBusy, "the move of %s has begun anew", r.ID)
	}
	return s.handOver(ctx, n, r)
}

// handOver ends the outgoing move: the device is with the neighbour. From now on this domain sends
// the device's packets there or, if they no longer pass through here, does nothing.
func (s *Origin) handOver(ctx context.Context, n *neighbour, r *Record) *Refusal {
	m := *r.Move
	if !m.Carry {
		// The receiver gets the packets before us, so we leave the chain.
		if err := s.host.Forget(ctx, r.ID); err != nil {
			s.log.Error("a device that has left was not removed", "device", r.ID, "error", err)
			return refuse(CodeFailed, "the old branch could not be removed")
		}
		r.end()
	} else {
		if err := s.host.Redirect(ctx, r.ID, n.Name, true); err != nil {
			s.log.Error("the packets of a device that has left were not redirected", "device", r.ID, "neighbour", n.Name, "error", err)
			return refuse(CodeFailed, "the packets could not be redirected")
		}
		r.Downstream, r.Host, r.Move = n.Name, n.Name, nil
		r.relay(n.Name)
	}
	r.dropMove(n.Name, m.ID)
	s.done.add(m.ID)
	s.put(ctx, r)
	s.event("handed-over", r, map[string]any{"neighbour": n.Name, "took": s.now().Sub(m.Started).String()})
	return nil
}

// delivered records that a message in the outbox has reached the neighbour, or handles its
// refusal.
func (s *Origin) delivered(ctx context.Context, n *neighbour, id string, o Unsent, err error) error {
	return s.records.with(ctx, id, func(r *Record) error {
		if r == nil {
			return nil
		}
		r.dropDelivered(o)
		if err != nil {
			s.handleRefused(ctx, n, r, o, err)
		} else if m := r.outgoing(n.Name); o.Kind == KindWithdraw && m != nil && m.ID == o.Move {
			s.cancelOutgoing(ctx, r) // the neighbour agrees that the move has ended
		}
		s.put(ctx, r)
		return nil
	})
}

// cancelOutgoing ends an outgoing move, without a message to the neighbour.
func (s *Origin) cancelOutgoing(ctx context.Context, r *Record) {
	if err := s.host.Cancel(ctx, r.ID); err != nil {
		s.log.Error("a branch could not be removed", "device", r.ID, "error", err)
	}
	r.Move = nil
}

// giveBack sends the packets of a device of ours to a neighbour that still has the device. The device
// had come home and gone back to the neighbour before we could tell the neighbour. The neighbour's
// refusal must contain evidence that the device is there.
func (s *Origin) giveBack(ctx context.Context, n *neighbour, r *Record, err error) {
	refusal, _ := errors.AsType[*Refusal](err)
	if refusal.Evidence.check() != nil {
		return
	}
	if r.ConfirmedWith != n.Name {
		if wrong := s.prove(ctx, n, r, refusal.Evidence); wrong != nil { // prove asks no neighbour, because the device is our own
			s.violation(n, KindComplete, wrong)
			return
		}
	}
	if err := s.host.Redirect(ctx, r.ID, n.Name, true); err != nil {
		s.log.Error("a device is with a neighbour but its packets are not sent there", "device", r.ID, "neighbour", n.Name, "error", err)
		return
	}
	r.Downstream, r.Host, r.Former = n.Name, n.Name, ""
	s.event("handed-back", r, map[string]any{"neighbour": n.Name})
}

// handleRefused handles a final refusal of a message in the outbox.
func (s *Origin) handleRefused(ctx context.Context, n *neighbour, r *Record, o Unsent, err error) {
	s.log.Warn("a neighbour has refused a message", "neighbour", n.Name, "message", o.Kind, "device", r.ID, "error", err)
	switch {
	case o.Kind == KindWithdraw && codeOf(err) == CodeHere && r.outgoing(n.Name) != nil && r.Move.ID == o.Move:
		// The neighbour has the device; its message was lost. A device that can prove where it is
		// must do so.
		if r.needsProof(n.Name) || !r.Move.Back.IsZero() {
			return
		}
		if refusal := s.handOver(ctx, n, r); refusal != nil {
			s.log.Error("a device is with a neighbour but was not handed over", "device", r.ID, "error", refusal)
		}
	case o.Kind != KindComplete && r.outgoing(n.Name) != nil && r.Move.ID == o.Move:
		// The neighbour does not know the move.
		s.cancelOutgoing(ctx, r)
	case o.Kind == KindComplete && codeOf(err) == CodeHere && r.Home == s.self && r.Host == s.self && r.Move == nil && r.Arrived == o.Move:
		s.giveBack(ctx, n, r, err)
	case o.Kind == KindComplete && o.Move != "" && r.Host == s.self && r.Upstream == n.Name && r.Arrived == o.Move:
		// The domains that have the device's packets will not send them here.
		s.event("orphaned", r, map[string]any{"neighbour": n.Name, "reason": printable(err.Error())})
		s.forget(ctx, r)
	}
}

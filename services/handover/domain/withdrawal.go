package domain

import (
	"context"
	"slices"
	"time"
)

// onWithdraw ends a move, or our part in the chain.
func (s *Service) onWithdraw(ctx context.Context, n *neighbour, in *Withdraw) (*struct{}, error) {
	if in.Move != "" {
		if err := checkMove(in.Move); err != nil {
			return nil, refuse(CodeMalformed, "%v", err)
		}
	}
	why := map[string]any{"neighbour": n.Name, "reason": printable(in.Reason)}
	return nil, s.withForNeighbour(ctx, in.localID(s.self), func(r *Record) *Refusal {
		switch {
		case r == nil || r.Gone:
			return nil // there is nothing left to withdraw
		case in.Move != "":
			return s.withdrawMove(ctx, n, r, in.Move, why)
		}
		return s.withdrawChain(ctx, n, r, why)
	})
}

// withdrawMove ends a move that the neighbour has withdrawn.
func (s *Service) withdrawMove(ctx context.Context, n *neighbour, r *Record, move string, why map[string]any) *Refusal {
	switch {
	case r.incoming(n.Name) != nil && r.Move.ID == move:
		s.Receiver.endIncoming(ctx, r)
		s.Receiver.resume(r)
	case r.outgoing(n.Name) != nil && r.Move.ID == move:
		// The receiver has given up the move.
		s.Origin.cancelOutgoing(ctx, r)
		r.dropMove(n.Name, move)
	case r.Arrived == move && r.Host == s.self:
		return refuse(CodeHere, "%s has arrived", r.ID)
	default:
		return nil // the move is not in progress: there is nothing to withdraw
	}
	s.put(ctx, r)
	s.event("withdrawn", r, why)
	return nil
}

// withdrawChain ends our part in the chain: the upstream domain no longer sends us the device's
// packets, or the downstream domain no longer has the device.
func (s *Service) withdrawChain(ctx context.Context, n *neighbour, r *Record, why map[string]any) *Refusal {
	switch n.Name {
	case r.Upstream:
		r.enqueue(Unsent{Peer: r.Downstream, Kind: KindWithdraw, Reason: "its packets no longer pass through " + s.self})
		// That domain has ended its part.
		r.Outbox = slices.DeleteFunc(r.Outbox, func(o Unsent) bool { return o.Peer == n.Name })
	case r.Downstream:
		r.enqueue(Unsent{Peer: r.Upstream, Kind: KindWithdraw, Reason: "the device has left"})
	default:
		return refuse(CodeNotYours, "%s neither comes from %q nor goes there", r.ID, n.Name)
	}
	s.event("gone", r, why)
	s.forget(ctx, r)
	s.put(ctx, r)
	return nil
}

// watch ends moves that are overdue, until ctx ends.
func (s *Service) watch(ctx context.Context) {
	tick := time.NewTicker(min(time.Second, max(s.timing.Move/10, 10*time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, id := range s.records.overdue() {
				s.change(ctx, id, s.expire)
			}
			s.Receiver.forgetNotFound()
		}
	}
}

// expire ends a move that is overdue. The receiver gives the move up. The origin withdraws it; if the
// device is with the neighbour after all, the neighbour's answer says so. While the neighbour cannot be
// asked, the origin keeps the branch, but only for a bounded time.
func (s *Service) expire(ctx context.Context, r *Record) error {
	m := r.Move
	if m == nil || !s.now().After(m.Deadline) {
		return errUnchanged
	}
	if m.In {
		s.Receiver.abandonIncoming(ctx, r, "the device did not come in time")
		s.Receiver.resume(r)
		return nil
	}
	if m.Stage == StageExpired {
		s.event("withdrawn", r, map[string]any{"neighbour": m.Peer, "reason": "it did not answer in time"})
		s.Origin.cancelOutgoing(ctx, r)
		return nil
	}
	m.Stage = StageExpired
	m.Deadline = s.now().Add(10 * s.timing.Move)
	r.enqueue(Unsent{Peer: m.Peer, Kind: KindWithdraw, Move: m.ID, Reason: "the device did not arrive in time"})
	s.event("overdue", r, map[string]any{"neighbour": m.Peer})
	return nil
}

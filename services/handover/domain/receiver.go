package domain

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// onNotify handles an announcement (t1) and prepares the branch (t2). Its answer means that the branch
// has its rules.
func (s *Receiver) onNotify(ctx context.Context, n *neighbour, in *Notify) (*Prepared, error) {
	v := in.Visitor
	if err := errors.Join(checkMove(in.Move), in.Heading.check(), v.check()); err != nil {
		return nil, refuse(CodeMalformed, "%v", err)
	}
	id := v.LocalID(s.self)
	if r := s.mayBring(n, v, s.records.get(id)); r != nil {
		return nil, r
	}
	if r := s.records.get(id); r == nil || !r.onChain(s.self) {
		if refusal := s.confirm(ctx, n, v); refusal != nil {
			return nil, refusal
		}
	}
	out := &Prepared{Move: in.Move}
	return out, s.withForNeighbour(ctx, id, func(r *Record) *Refusal {
		// The check is repeated under the lock: the record may have changed while the home was asked.
		if refusal := s.mayBring(n, v, r); refusal != nil {
			return refusal
		}
		r = s.expect(r, v)
		r.Move = s.incomingMove(n.Name, in.Move, r.onChain(s.self))
		if err := s.prepare(ctx, r, in.Heading); err != nil {
			return refusalOf(err)
		}
		r.Move.Stage, out.Carry = StagePrepared, r.Move.Carry
		s.records.set(r)
		s.event("expected", r, map[string]any{"neighbour": n.Name})
		return nil
	})
}

// expect returns the record of a device that comes: the present one, if the device passes through
// here already.
func (s *Receiver) expect(r *Record, v Visitor) *Record {
	if r == nil && v.Home == s.self {
		k, _ := s.host.Device(v.Device)
		return &Record{ID: v.Device, Visitor: k.Visitor.clone()}
	}
	if r == nil || !r.onChain(s.self) {
		fresh := &Record{ID: v.LocalID(s.self)}
		if r != nil {
			fresh.Outbox = r.Outbox
		}
		fresh.Visitor = v.clone()
		return fresh
	}
	return r // our own record is more reliable than what we are told
}

// incomingMove returns a move to this domain.
func (s *Receiver) incomingMove(peer, id string, onChain bool) *Move {
	m := s.newMove(peer, StagePreparing)
	m.ID, m.In, m.Carry = id, true, !onChain
	return m
}

// prepare makes the host prepare the branch, and undoes everything if the host cannot.
func (s *Receiver) prepare(ctx context.Context, r *Record, h Heading) error {
	s.put(ctx, r)
	err := s.host.Prepare(ctx, s.visit(r, h))
	if err == nil {
		return nil
	}
	s.log.Warn("a device's branch could not be prepared", "device", r.ID, "neighbour", r.Move.Peer, "error", err)
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timing.Request)
	defer cancel()
	s.endIncoming(undo, r)
	s.put(undo, r)
	return err
}

// visit returns the host's description of a device that comes.
func (s *Receiver) visit(r *Record, h Heading) Visit {
	via := r.Upstream
	if !r.onChain(s.self) {
		via = r.Move.Peer
	}
	return Visit{Visitor: r.Visitor.clone(), ID: r.ID, Via: via, Heading: h}
}

// endIncoming ends a move to this domain.
func (s *Receiver) endIncoming(ctx context.Context, r *Record) {
	r.Move = nil
	if err := s.host.Cancel(ctx, r.ID); err != nil {
		s.log.Error("a prepared branch could not be removed", "device", r.ID, "error", err)
	}
	if !r.onChain(s.self) {
		r.Gone = true
	}
}

// abandonIncoming ends a move to this domain and queues a message to the origin.
func (s *Receiver) abandonIncoming(ctx context.Context, r *Record, why string) {
	m := r.Move
	s.endIncoming(ctx, r)
	r.enqueue(Unsent{Peer: m.Peer, Kind: KindWithdraw, Move: m.ID, Reason: why})
	s.event("not-arrived", r, map[string]any{"neighbour": m.Peer, "reason": why})
}

// onReady handles the message that the origin now sends packets to the branch, and lets the device
// attach.
func (s *Receiver) onReady(ctx context.Context, n *neighbour, in *Ready) (*struct{}, error) {
	id := in.localID(s.self)
	return nil, s.withForNeighbour(ctx, id, func(r *Record) *Refusal {
		if r != nil && r.Arrived == in.Move && r.Host == s.self {
			return nil // the device has come already
		}
		if r == nil || r.incoming(n.Name) == nil || r.Move.ID != in.Move {
			return refuse(CodeUnknown, "no such move of %s is under way", id)
		}
		r.Move.Stage = StageReady
		s.records.set(r)
		s.resume(r)
		return nil
	})
}

// resume lets the host handle the DHCP messages of a device that were left unanswered.
func (s *Receiver) resume(r *Record) {
	for _, m := range r.MACs {
		s.host.Resume(m)
	}
}

// Attached records that the device has got its address from us at an edge port (t3). e is its
// request, or nil. Attached does not block.
func (s *Receiver) Attached(id string, e *Evidence) {
	if s.records.get(id) == nil {
		return
	}
	since := s.now()
	ok := s.tasks.Start(func(ctx context.Context) {
		s.change(ctx, id, func(_ context.Context, r *Record) error {
			moved := r.Host != s.self || r.Move != nil || r.Downstream != ""
			switch {
			case r.Gone || !moved && r.ConfirmedUntil.IsZero():
				return errUnchanged
			case moved:
				s.arrive(r, e, since)
			}
			r.ConfirmedUntil = time.Time{} // the confirmation was for this arrival
			return nil
		})
	})
	if !ok {
		s.log.Warn("neighbours are not told of a device's arrival: the service is not running", "device", id)
	}
}

// overlapMargin is the time that ending the copies may take: switches use cached decisions for some
// milliseconds after they have confirmed a change.
const overlapMargin = 150 * time.Millisecond

// arrive records that the device is here, and queues the messages that follow: to the origin (t4),
// to the domain from which its packets come, and to a part of the chain that is no longer used.
func (s *Receiver) arrive(r *Record, e *Evidence, since time.Time) {
	m, before := r.Move, r.Downstream
	if m != nil && !m.In {
		// The device never left, or has come back. It belongs to the domain that saw it last; if that
		// is the receiver, the receiver has to prove it anew.
		m.Back, m.Seen, m.Proven, r.Host = since, e, false, s.self
		return
	}
	came := ""
	// A place that still gets copies must not be released before they end.
	hold := since
	if k, ok := s.host.Device(r.ID); ok && k.Overlap > 0 {
		hold = since.Add(k.Overlap + overlapMargin)
	}
	if m != nil {
		came = m.Peer
		if !r.onChain(s.self) {
			r.Upstream = came
		}
		o := Unsent{Peer: came, Kind: KindComplete, Move: m.ID, Host: s.self, Since: since, Evidence: e}
		if !m.Carry {
			o.NotBefore = hold
		}
		r.enqueue(o)
		r.Arrived = m.ID
	}
	r.Host, r.Downstream, r.Former, r.ConfirmedWith, r.Move = s.self, "", before, "", nil
	if before != came {
		r.enqueue(Unsent{Peer: before, Kind: KindWithdraw, Reason: "the device is in " + s.self, NotBefore: hold})
	}
	if r.Upstream != came {
		r.enqueue(Unsent{Peer: r.Upstream, Kind: KindComplete, Host: s.self})
	}
	attrs := map[string]any{"from": came}
	if m != nil {
		attrs["took"] = since.Sub(m.Started).Round(time.Microsecond).String()
		attrs["reactive"] = m.Reactive
	}
	s.event("arrived", r, attrs)
}

// Left records that a device that was here has released its address or lost it. It does not block.
func (s *Receiver) Left(id string) {
	if s.records.get(id) == nil {
		return
	}
	s.tasks.Start(func(ctx context.Context) {
		s.change(ctx, id, func(ctx context.Context, r *Record) error {
			if r.Host != s.self || r.Upstream == "" {
				return errUnchanged
			}
			r.enqueue(Unsent{Peer: r.Upstream, Kind: KindWithdraw, Reason: "the device has left"})
			s.forget(ctx, r)
			return nil
		})
	})
}

// Admit decides how to handle a DHCP message with the hardware address; h holds the place that the
// message came from. Admit does not block; it may start to ask neighbours.
func (s *Receiver) Admit(mac openflow.MAC, h Heading, e *Evidence) Admission {
	r := s.records.ofMAC(mac)
	switch {
	case r == nil || r.Gone:
		if _, known := s.host.DeviceByMAC(mac); known || len(s.neighbours) == 0 {
			return Serve
		}
		return s.ask(mac, h, e)
	case r.Move != nil && r.Move.In && r.Move.Stage != StageReady:
		return Wait
	case s.needsConfirmation(r, h.place()):
		return s.askHome(r, mac, h.place(), e)
	}
	return Serve
}

// needsConfirmation reports whether the home of a visitor first has to confirm that the visitor
// has sent the request at the place: the visitor's key is not here. No confirmation is needed at
// its present place, or if its home has just given one.
func (s *Receiver) needsConfirmation(r *Record, p Place) bool {
	if !r.Signed || r.Home == s.self || r.Confirmed == p && s.now().Before(r.ConfirmedUntil) {
		return false
	}
	k, ok := s.host.Device(r.ID)
	return !ok || !k.Here || k.Place != p
}

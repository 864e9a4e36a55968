package domain

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-net/sluice/services/handover/registry"
)

// onHello answers a hello.
func (s *Service) onHello(context.Context, *neighbour, *Hello) (*struct{}, error) { return nil, nil }

// onQuery answers whether the device with a hardware address is in this domain, or belongs to it. It
// does not report a device whose packets merely pass through here; the domain that has the device does.
func (s *Origin) onQuery(_ context.Context, _ *neighbour, in *Query) (*Answer, error) {
	if in.MAC.IsZero() || in.MAC.IsMulticast() {
		return nil, refuse(CodeMalformed, "hardware address %v: a unicast address", in.MAC)
	}
	k, ok := s.host.DeviceByMAC(in.MAC)
	if !ok {
		return &Answer{}, nil
	}
	r := s.records.get(k.LocalID(s.self))
	v, host := k.Visitor.clone(), s.self
	if r != nil && !r.Gone {
		v, host = r.Visitor.clone(), r.Host
	}
	ours := s.mayGiveAway(r, k.Home)
	if !ours && k.Home != s.self || host == "" || v.check() != nil {
		return &Answer{}, nil
	}
	return &Answer{Known: true, Visitor: &v, Host: host}, nil
}

// onClaim gives away a device that has appeared with the neighbour.
func (s *Origin) onClaim(ctx context.Context, n *neighbour, in *Claim) (*Prepared, error) {
	if err := errors.Join(checkMove(in.Move), in.Evidence.check()); err != nil {
		return nil, refuse(CodeMalformed, "%v", err)
	}
	id := in.localID(s.self)
	k, ok := s.host.Device(id)
	if !ok || k.Home != in.Home {
		return nil, refuse(CodeUnknown, "there is no device %s", id)
	}
	r := s.records.get(id)
	if !s.mayGiveAway(r, k.Home) {
		return nil, refuse(CodeNotYours, "%s is not here", id)
	}
	if !slices.Contains(k.MACs, in.MAC) {
		return nil, refuse(CodeNotYours, "%v is no hardware address of %s", in.MAC, id)
	}
	if r != nil && r.outgoing(n.Name) != nil && r.Move.ID == in.Move {
		return &Prepared{Move: in.Move, Carry: r.Move.Carry}, nil // an earlier claim asked the same
	}
	if r == nil || r.Gone {
		r = &Record{ID: id, Visitor: k.Visitor}
	}
	if refusal := s.prove(ctx, n, r, in.Evidence); refusal != nil {
		return nil, refusal
	}
	return s.giveAway(ctx, n, id, in.Move)
}

// giveAway begins a move that the device has requested itself.
func (s *Origin) giveAway(ctx context.Context, n *neighbour, id, move string) (*Prepared, error) {
	out := &Prepared{Move: move}
	return out, s.withForNeighbour(ctx, id, func(r *Record) *Refusal {
		k, ok := s.host.Device(id)
		if !ok || !s.mayGiveAway(r, k.Home) || k.check() != nil {
			return refuse(CodeNotYours, "%s is not here", id)
		}
		r = s.departing(r, k.Visitor)
		if r.Move != nil && r.Move.In {
			return refuse(CodeBusy, "another move of %s is under way", id)
		}
		if err := s.dropOutgoing(ctx, r, "it has turned up elsewhere"); err != nil {
			return refusalOf(err)
		}
		r.Move = s.newMove(n.Name, StageAsked)
		r.Move.ID, r.Move.Reactive, r.Move.Proven = move, true, true
		// If the device's packets come from the claimant, it needs none from us.
		if err := s.branchTo(ctx, r, r.Move, n.Name != r.Upstream); err != nil {
			s.log.Warn("a device that has appeared elsewhere was not given away", "device", id, "neighbour", n.Name, "error", err)
			s.cancelOutgoing(ctx, r)
			s.put(ctx, r)
			return refusalOf(err)
		}
		out.Carry = r.Move.Carry
		s.put(ctx, r)
		s.event("claimed", r, map[string]any{"neighbour": n.Name, "bicast": r.Policy == registry.PolicySeamless})
		return nil
	})
}

// onVerify verifies evidence for a domain that has the device from us, or to which the device is on
// its way.
func (s *Origin) onVerify(ctx context.Context, n *neighbour, in *Verify) (*struct{}, error) {
	if err := in.Evidence.check(); err != nil {
		return nil, refuse(CodeMalformed, "%v", err)
	}
	id := in.localID(s.self)
	r := s.records.get(id)
	if r == nil || r.Gone || r.Downstream != n.Name && r.Former != n.Name && r.outgoing(n.Name) == nil {
		return nil, refuse(CodeNotYours, "%s is not with %q", id, n.Name)
	}
	if refusal := s.verify(ctx, r, in.Evidence); refusal != nil {
		return nil, refusal
	}
	// Evidence is accepted only once, so the neighbour's next message needs none.
	s.change(ctx, id, func(_ context.Context, now *Record) error {
		switch m := now.outgoing(n.Name); {
		case m != nil && r.Move != nil && m.ID == r.Move.ID && m.Back.Equal(r.Move.Back):
			m.Proven = true
		case now.Home == s.self && now.Host == s.self && now.Former == n.Name:
			now.ConfirmedWith = n.Name
		default:
			return errUnchanged
		}
		return nil
	})
	return nil, nil
}

package domain

import (
	"context"
	"slices"
)

// mayBring decides whether the neighbour may bring us the device. r is our record of it, or nil.
// It asks nobody and changes nothing.
func (s *common) mayBring(n *neighbour, v Visitor, r *Record) *Refusal {
	if err := v.check(); err != nil {
		return refuse(CodeMalformed, "%v", err)
	}
	id := v.LocalID(s.self)
	if k, ok := s.host.Device(id); ok && !k.same(v) {
		return refuse(CodeTaken, "%s is known here with other addresses", id)
	}
	if v.Home == s.self {
		return s.mayReturn(n, id, r)
	}
	if !s.inPrefix(n, v) {
		return refuse(CodePrefix, "%q may not bring a device of %q with the address %v", n.Name, v.Home, v.IP)
	}
	if r != nil && !r.Gone && r.onChain(s.self) {
		return s.mayReturn(n, id, r)
	}
	if r != nil && r.Move != nil && r.incoming(n.Name) == nil {
		return refuse(CodeBusy, "another domain is bringing %s", id)
	}
	if visitors, _, _ := s.records.count(n.Name); (r == nil || r.Gone) && visitors >= n.MaxVisitors {
		return refuse(CodeBusy, "%q has %d devices here, as many as are permitted", n.Name, n.MaxVisitors)
	}
	if err := s.host.Check(v); err != nil {
		return refusalOf(err)
	}
	return nil
}

// mayReturn decides about a device that is our own or passes through: only the domain that has it,
// as far as we know, may bring it back.
func (s *common) mayReturn(n *neighbour, id string, r *Record) *Refusal {
	switch {
	case r == nil || r.Gone:
		if _, ok := s.host.Device(id); !ok {
			return refuse(CodeUnknown, "there is no device %s", id)
		}
		return refuse(CodeHere, "%s has not left", id)
	case r.Host == s.self:
		return refuse(CodeHere, "%s has not left", id)
	case r.Host != n.Name:
		return refuse(CodeNotYours, "%s is not known to be with %q", id, n.Name)
	case r.Move != nil && r.incoming(n.Name) == nil:
		return refuse(CodeBusy, "another move of %s is under way", id)
	}
	return nil
}

// inPrefix reports whether the neighbour may bring a device with this address. The address must lie in
// Prefixes if the neighbour is the device's home, and otherwise in Transit.
func (s *common) inPrefix(n *neighbour, v Visitor) bool {
	if v.Home == n.Name {
		return containsAddr(n.Prefixes, v.IP)
	}
	if home := s.neighbours[v.Home]; home != nil && !containsAddr(home.Prefixes, v.IP) {
		return false
	}
	return containsAddr(n.Transit, v.IP)
}

// confirm asks the home of a device that another neighbour brings whether the device is with that
// neighbour. A home that is no neighbour of ours cannot be asked; then the transit agreement has to
// suffice.
func (s *common) confirm(ctx context.Context, n *neighbour, v Visitor) *Refusal {
	home := s.neighbours[v.Home]
	if home == nil || home == n {
		return nil
	}
	var a Answer
	if err := home.request(ctx, KindQuery, &Query{MAC: v.MACs[0]}, &a, s.timing.Answer); err != nil {
		return refuse(CodeFailed, "%q could not be asked about its device", v.Home)
	}
	if !a.Known || a.Visitor == nil || !a.Visitor.same(v) || a.Host != n.Name {
		return refuse(CodeNotYours, "%q does not know its device %q to be with %q", v.Home, v.Device, n.Name)
	}
	return nil
}

// prove checks that the device is with the neighbour. A device that signs must have signed the
// evidence, which only its home can verify. For other devices, Neighbour.Unsigned decides. The caller
// must not hold the device's lock.
func (s *common) prove(ctx context.Context, n *neighbour, r *Record, e *Evidence) *Refusal {
	if !r.Signed {
		if !n.Unsigned {
			return refuse(CodeEvidence, "%s signs nothing, and %q may not move such devices by their hardware address alone", r.ID, n.Name)
		}
		return nil
	}
	if e == nil {
		return refuse(CodeEvidence, "%s signs its requests, and none was shown", r.ID)
	}
	return s.verify(ctx, r, *e)
}

// verify verifies evidence by the device's key if the device is our own. Otherwise it asks the domain
// from which we have the device or are about to get it.
func (s *common) verify(ctx context.Context, r *Record, e Evidence) *Refusal {
	if !slices.Contains(r.MACs, e.Src) {
		return refuse(CodeEvidence, "%v is no hardware address of %s", e.Src, r.ID)
	}
	if r.Home == s.self {
		if err := s.host.Verify(ctx, r.ID, e); err != nil {
			s.log.Debug("evidence of a device's presence was not accepted", "device", r.ID, "error", err)
			return refusalOf(err)
		}
		return nil
	}
	from := r.Upstream
	if from == "" && r.Move != nil {
		from = r.Move.Peer // the device is on its way here
	}
	up := s.neighbours[from]
	if up == nil {
		return refuse(CodeEvidence, "the home of %s cannot be asked", r.ID)
	}
	err := up.request(ctx, KindVerify, &Verify{Subject: r.subject(), Evidence: e}, nil, s.timing.Request)
	switch {
	case err == nil:
		return nil
	case codeOf(err) == "":
		return refuse(CodeFailed, "the home of %s could not be asked", r.ID)
	}
	return refusalOf(err)
}

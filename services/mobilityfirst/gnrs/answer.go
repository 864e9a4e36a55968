package gnrs

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// optionProof requests the complete record with its signature. The value of the option is as long
// as what the record adds to the answer, so that the answer is not much longer than the request.
const optionProof gnrswire.OptionKind = 20

const (
	proofSize = 120
	// maxBareAddresses is the maximum size in bytes of the addresses in an answer without proof;
	// further ones are omitted. So a short request, whose source may be forged, never has a long
	// answer.
	maxBareAddresses = 64
	// maxRequester is the maximum size in bytes of a requester's address.
	maxRequester = 32
	// maxAnswerLifetime is how long an answer may be cached, if its record is valid that long.
	maxAnswerLifetime = 30 * time.Second
)

// answer appends the answer to a datagram to b, and returns the address to send it to. It appends
// nothing if the datagram is not a request, or if the answer has to wait for the store.
func (s *Server) answer(b []byte, from netip.AddrPort, asked []byte, now time.Time) (to netip.AddrPort, out []byte) {
	to, out, w := s.prepare(b, from, asked, now)
	if w != nil {
		out = s.finishWrite(b, w, w.record.Verify(now), now)
	}
	return to, out
}

// pendingWrite is a write whose signature has to be checked.
type pendingWrite struct {
	record    *record.Record
	from      source
	to        netip.AddrPort
	localOnly bool
	a         *gnrswire.Message
}

// prepare appends the answer to a datagram as answer does, except for a write. For a write that
// passes all other checks it appends nothing and returns w: its signature has to be verified, and
// finishWrite then appends the answer.
func (s *Server) prepare(b []byte, from netip.AddrPort, asked []byte, now time.Time) (to netip.AddrPort, out []byte, w *pendingWrite) {
	m, err := gnrswire.Parse(asked)
	if err != nil || m.Answer || len(m.Requester.Value) > maxRequester {
		s.malformed.Add(1)
		return from, nil, nil
	}
	to = from
	if at, isAddr := m.Requester.AddrPort(); isAddr && at.Addr() == from.Addr().Unmap() && at.Port() != 0 {
		to = at // the original's hosts may listen at another port than they send from
	}
	a := &gnrswire.Message{Version: m.Version, Kind: m.Kind, Answer: true, Request: m.Request, Requester: m.Requester}
	proven, cookie := s.cookies.check(m, from.Addr(), now)
	if cookie != nil {
		a.Options = append(a.Options, CookieOption(cookie))
	}
	sender := source{from.Addr(), proven}
	code, waits := TooOften, false
	switch {
	case m.Kind == gnrswire.Lookup:
		if !s.allow(sender, useLookup, useDomainLookup, now) {
			return to, nil, nil // a refusal would cost as much as the answer
		}
		s.lookups.Add(1)
		code, waits = s.lookup(m, a, sender, to, now)
	case s.allow(sender, useWrite, useDomainWrite, now):
		s.written.Add(1)
		r, isAddr, err := record.FromMessage(m, m.GUID)
		switch {
		case !isAddr:
			code = Unsigned
		case err != nil:
			code = codeOf(err)
		default:
			return to, nil, &pendingWrite{r, sender, to, isLocalOnly(m), a}
		}
	}
	if waits {
		return to, nil, nil
	}
	return to, s.appendAnswer(b, a, code), nil
}

// appendAnswer appends the encoded answer to b.
func (s *Server) appendAnswer(b []byte, a *gnrswire.Message, code Code) []byte {
	s.setCode(a, code)
	b, err := a.AppendTo(b)
	if err != nil {
		s.warnLimit.Warn(s.Log, "an answer cannot be written", "error", err)
		return nil
	}
	return b
}

// setCode sets the code of an answer and counts it.
func (s *Server) setCode(a *gnrswire.Message, code Code) {
	a.Code = uint16(code)
	s.answers[code].Add(1)
}

// lookup fills an answer with the addresses of a name, or reports that the answer has to wait. It
// registers a client that has proven its address for notifications before it reads the store, so
// that no change is missed.
func (s *Server) lookup(m, a *gnrswire.Message, from source, to netip.AddrPort, now time.Time) (code Code, waits bool) {
	hears := s.shared == nil || s.shared.Hears()
	if hears && from.proven && hasOption(m, optionWatch, 0) && s.watches.add(m.GUID, to, m.Request, now, maxAnswerLifetime) {
		a.Options = append(a.Options, gnrswire.Option{Kind: optionWatch})
	}
	q := question{name: m.GUID, from: from, to: to, proof: hasOption(m, optionProof, proofSize), localOnly: isLocalOnly(m), a: a}
	if s.shared == nil {
		return s.lookupNow(q, now)
	}
	if !s.storeQueue.start(q.from, to, a, func(now time.Time) (Code, bool) { return s.lookupNow(q, now) }) {
		return Busy, false
	}
	return OK, true
}

// lookupNow looks a name up in the store, and forwards the lookup to other domains if necessary.
func (s *Server) lookupNow(q question, now time.Time) (code Code, waits bool) {
	r, err := s.stored(q.name, now)
	if err != nil {
		if code = codeOf(err); code == Failed {
			s.warnLimit.Warn(s.Log, "a name cannot be read", "name", q.name, "error", err)
		}
		return code, false
	}
	if s.mustForward(q, r != nil) {
		cloneRequester(q.a)
		if !s.limits.allow(q.from, useForward, now) || !s.forwarder.add(q) {
			return Busy, false
		}
		return OK, true
	}
	if r == nil {
		return NotFound, false
	}
	fill(q.a, r, q.proof, time.Unix(r.Until, 0).Sub(now))
	return OK, false
}

// stored returns the stored record of a name, or nil if there is none or it has expired.
func (s *Server) stored(name frame.GUID, now time.Time) (*record.Record, error) {
	b, found, err := s.Store.Get(nil, name)
	if err != nil || !found {
		return nil, err
	}
	r, err := record.Parse(b)
	if err != nil || r.Expired(now) {
		return nil, err
	}
	return r, nil
}

// fill puts a record into an answer, with the time for which it may be cached.
func fill(a *gnrswire.Message, r *record.Record, proof bool, left time.Duration) {
	if proof {
		r.Into(a)
	} else {
		a.Addresses = bareAddresses(r.Addresses)
	}
	a.Options = append(a.Options, gnrswire.Option{Kind: gnrswire.TimeToLive, Value: seconds(min(left, maxAnswerLifetime))})
}

// bareAddresses returns the first addresses, as many as fit into an answer without proof.
func bareAddresses(all []gnrswire.Address) []gnrswire.Address {
	size := 0
	for i, a := range all {
		if size += 4 + len(a.Value); size > maxBareAddresses {
			return all[:i]
		}
	}
	return all
}

// hasOption reports whether a message has an option of at least this size.
func hasOption(m *gnrswire.Message, kind gnrswire.OptionKind, size int) bool {
	return slices.ContainsFunc(m.Options, func(o gnrswire.Option) bool { return o.Kind == kind && len(o.Value) >= size })
}

// seconds encodes a duration for an option, in whole seconds. A positive duration below one second
// counts as one second.
func seconds(d time.Duration) []byte {
	if d > 0 {
		d = max(d, time.Second)
	}
	return binary.BigEndian.AppendUint32(nil, uint32(max(d/time.Second, 0)))
}

// finishWrite starts to write a record, unless problem is not nil, and appends to b an answer that
// need not wait for the store.
func (s *Server) finishWrite(b []byte, w *pendingWrite, problem error, now time.Time) []byte {
	if problem != nil {
		return s.appendAnswer(b, w.a, codeOf(problem))
	}
	cloneMemory(w.record, w.a)
	code, waits := Busy, false
	switch {
	case s.shared == nil:
		code, waits = s.write(w, now)
	case s.storeQueue.start(w.from, w.to, w.a, func(now time.Time) (Code, bool) { return s.write(w, now) }):
		waits = true
	}
	if waits {
		return nil
	}
	return s.appendAnswer(b, w.a, code)
}

// write starts to write a verified record, or returns the code with which it is refused.
func (s *Server) write(w *pendingWrite, now time.Time) (code Code, waits bool) {
	name := w.record.GUID()
	if !s.isOther(w.from) {
		_, there, err := s.Store.Get(nil, name)
		if err != nil {
			return s.codeOf(name, err), false
		}
		if !there && !w.from.proven {
			return Unproven, false // the answer contains a cookie, if the client knows cookies
		}
		if !there && !s.limits.allow(w.from, useNewName, now) {
			return TooOften, false
		}
	}
	err := s.Store.Start(w.record, func(changed bool, err error) {
		if changed {
			if s.Others != nil {
				s.Others.Written(name, w.localOnly)
			}
			s.nameChanged(name)
		}
		s.setCode(w.a, s.codeOf(name, err))
		s.sendLater(s.delayed, w.to, w.a)
	})
	return s.codeOf(name, err), err == nil
}

// isOther reports whether a request comes from another domain.
func (s *Server) isOther(from source) bool {
	return from.proven && s.Others != nil && s.Others.IsPeer(from.addr)
}

// allow reports whether a source may perform one more action of the kind what. For another domain
// the kind domains counts instead, because a domain sends the lookups and writes of many clients.
func (s *Server) allow(from source, what, domains use, now time.Time) bool {
	if s.isOther(from) {
		what = domains
	}
	return s.limits.allow(from, what, now)
}

// codeOf returns the code for the result of a write, and logs a failure of the store.
func (s *Server) codeOf(name frame.GUID, err error) Code {
	code := codeOf(err)
	if code == Failed {
		s.warnLimit.Warn(s.Log, "a name cannot be written", "name", name, "error", err)
	}
	return code
}

// cloneMemory copies the memory that a record and its answer share with the receive buffer, which
// is used again.
func cloneMemory(r *record.Record, a *gnrswire.Message) {
	cloneRequester(a)
	for i := range r.Addresses {
		r.Addresses[i].Value = bytes.Clone(r.Addresses[i].Value)
	}
}

// cloneRequester copies the memory that an answer shares with the receive buffer.
func cloneRequester(a *gnrswire.Message) { a.Requester.Value = bytes.Clone(a.Requester.Value) }

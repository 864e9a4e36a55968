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

// optionProof asks for the whole record, with its signature. It is as long as that makes the answer
// longer.
const optionProof gnrswire.OptionKind = 20

const (
	proofSize = 120
	// bareAnswer is how long addresses may be, in bytes, in an answer without proof; what does not
	// fit is left out. So a short question has no long answer, which might go to somebody else.
	bareAnswer = 64
	// maxRequester is how long may be what says who asks, in bytes.
	maxRequester = 32
	// keepFor is how long an answer may be kept, if it holds as long.
	keepFor = 30 * time.Second
)

// answer appends to b what is answered to a datagram, and says to whom. Nothing is answered at once to
// what is no question, and to what has to wait for the store.
func (s *Server) answer(b []byte, from netip.AddrPort, asked []byte, now time.Time) (to netip.AddrPort, out []byte) {
	to, out, w := s.begin(b, from, asked, now)
	if w != nil {
		out = s.start(b, w, w.record.Verify(now), now)
	}
	return to, out
}

// waiting is a write whose signature is to be looked at.
type waiting struct {
	record *record.Record
	from   netip.AddrPort
	to     netip.AddrPort
	alone  bool
	a      *gnrswire.Message
}

// begin is answer up to where a signature has to be looked at, which start goes on from.
func (s *Server) begin(b []byte, from netip.AddrPort, asked []byte, now time.Time) (to netip.AddrPort, out []byte, w *waiting) {
	m, err := gnrswire.Parse(asked)
	if err != nil || m.Answer || len(m.Requester.Value) > maxRequester {
		s.malformed.Add(1)
		return from, nil, nil
	}
	to = from
	if at, is := m.Requester.AddrPort(); is && at.Addr() == from.Addr().Unmap() && at.Port() != 0 {
		to = at // the original's hosts may ask from another port than they listen at
	}
	a := &gnrswire.Message{Version: m.Version, Kind: m.Kind, Answer: true, Request: m.Request, Requester: m.Requester}
	code, waits := TooOften, false
	switch {
	case m.Kind == gnrswire.Lookup:
		if !s.may(from.Addr(), asks, othersAsks, now) {
			return to, nil, nil // telling would cost as much as answering
		}
		s.lookups.Add(1)
		code, waits = s.lookup(m, a, from, to, now)
	case s.may(from.Addr(), writes, othersWrites, now):
		s.written.Add(1)
		r, is, err := record.FromMessage(m, m.GUID)
		switch {
		case !is:
			code = Unsigned
		case err != nil:
			code = codeOf(err)
		default:
			return to, nil, &waiting{r, from, to, isAlone(m), a}
		}
	}
	if waits {
		return to, nil, nil
	}
	return to, s.concluded(b, a, code), nil
}

// concluded appends an answer to b.
func (s *Server) concluded(b []byte, a *gnrswire.Message, code Code) []byte {
	s.conclude(a, code)
	b, err := a.AppendTo(b)
	if err != nil {
		s.lines.Warn(s.Log, "an answer cannot be written", "error", err)
		return nil
	}
	return b
}

// conclude ends an answer.
func (s *Server) conclude(a *gnrswire.Message, code Code) {
	a.Code = uint16(code)
	s.answers[code].Add(1)
}

// lookup puts into the answer where a name is, or says that it waits. Who wants to be told of changes is noted before: none is
// missed between.
func (s *Server) lookup(m, a *gnrswire.Message, from, to netip.AddrPort, now time.Time) (code Code, waits bool) {
	hears := s.shared == nil || s.shared.Hears()
	if hears && has(m, optionWatch, 0) && s.watches.add(m.GUID, to, m.Request, now, keepFor) {
		a.Options = append(a.Options, gnrswire.Option{Kind: optionWatch})
	}
	q := question{name: m.GUID, from: from.Addr(), to: to, proof: has(m, optionProof, proofSize), alone: isAlone(m), a: a}
	if s.shared == nil {
		return s.look(q, now)
	}
	if !s.aside.do(q.from, to, a, func(now time.Time) (Code, bool) { return s.look(q, now) }) {
		return Busy, false
	}
	return OK, true
}

// look is lookup when it is known what is asked.
func (s *Server) look(q question, now time.Time) (code Code, waits bool) {
	r, err := s.stored(q.name, now)
	if err != nil {
		if code = codeOf(err); code == Failed {
			s.lines.Warn(s.Log, "a name cannot be read", "name", q.name, "error", err)
		}
		return code, false
	}
	if s.asksOthers(q, r != nil) {
		keep(q.a)
		if !s.askers.allow(q.from, asksOthers, now) || !s.others.add(q) {
			return Busy, false
		}
		return OK, true
	}
	if r == nil {
		return NotFound, false
	}
	put(q.a, r, q.proof, time.Unix(r.Until, 0).Sub(now))
	return OK, false
}

// stored is what the server has of a name; nil for nothing, or what does not hold any more.
func (s *Server) stored(name frame.GUID, now time.Time) (*record.Record, error) {
	b, found, err := s.Store.Get(nil, name)
	if err != nil || !found {
		return nil, err
	}
	r, err := record.Parse(b)
	if err != nil || r.Over(now) {
		return nil, err
	}
	return r, nil
}

// put puts a record into an answer, which may be kept for as long as it holds, but not for long.
func put(a *gnrswire.Message, r *record.Record, proof bool, left time.Duration) {
	if proof {
		r.Into(a)
	} else {
		a.Addresses = fitting(r.Addresses)
	}
	a.Options = append(a.Options, gnrswire.Option{Kind: gnrswire.TimeToLive, Value: seconds(min(left, keepFor))})
}

// fitting are the first addresses, as many as an answer without proof has.
func fitting(all []gnrswire.Address) []gnrswire.Address {
	size := 0
	for i, a := range all {
		if size += 4 + len(a.Value); size > bareAnswer {
			return all[:i]
		}
	}
	return all
}

// has says whether a message has an option, of so many bytes at least.
func has(m *gnrswire.Message, kind gnrswire.OptionKind, size int) bool {
	return slices.ContainsFunc(m.Options, func(o gnrswire.Option) bool { return o.Kind == kind && len(o.Value) >= size })
}

// seconds is a time as options have it: whole seconds, of which one that has begun counts if it is the only one.
func seconds(d time.Duration) []byte {
	if d > 0 {
		d = max(d, time.Second)
	}
	return binary.BigEndian.AppendUint32(nil, uint32(max(d/time.Second, 0)))
}

// start has a record written, unless something is wrong with it, and appends to b what is answered at once, which is nothing
// if that waits for the store.
func (s *Server) start(b []byte, w *waiting, wrong error, now time.Time) []byte {
	if wrong != nil {
		return s.concluded(b, w.a, codeOf(wrong))
	}
	own(w.record, w.a)
	code, waits := Busy, false
	switch {
	case s.shared == nil:
		code, waits = s.write(w, now)
	case s.aside.do(w.from.Addr(), w.to, w.a, func(now time.Time) (Code, bool) { return s.write(w, now) }):
		waits = true
	}
	if waits {
		return nil
	}
	return s.concluded(b, w.a, code)
}

// write has a record written in which nothing is wrong, or says why it is not.
func (s *Server) write(w *waiting, now time.Time) (code Code, waits bool) {
	name := w.record.GUID()
	if !s.isOther(w.from.Addr()) {
		_, there, err := s.Store.Get(nil, name)
		if err != nil {
			return s.codeOf(name, err), false
		}
		if !there && !s.askers.allow(w.from.Addr(), newNames, now) {
			return TooOften, false
		}
	}
	err := s.Store.Start(w.record, func(changed bool, err error) {
		if changed {
			if s.Others != nil {
				s.Others.Written(name, w.alone)
			}
			s.change(name)
		}
		s.conclude(w.a, s.codeOf(name, err))
		s.later(s.waited, w.to, w.a)
	})
	return s.codeOf(name, err), err == nil
}

// isOther says whether an address is another domain's.
func (s *Server) isOther(a netip.Addr) bool { return s.Others != nil && s.Others.Is(a) }

// may says whether an address may do something once more, or, if it is another domain's, what that is for domains: they ask
// for many, and bring what many write.
func (s *Server) may(a netip.Addr, what, domains use, now time.Time) bool {
	if s.isOther(a) {
		what = domains
	}
	return s.askers.allow(a, what, now)
}

// codeOf is the code for what became of a write.
func (s *Server) codeOf(name frame.GUID, err error) Code {
	code := codeOf(err)
	if code == Failed {
		s.lines.Warn(s.Log, "a name cannot be written", "name", name, "error", err)
	}
	return code
}

// own gives a record, and the answer to who sends it, memory of their own: what they share is read
// into again.
func own(r *record.Record, a *gnrswire.Message) {
	keep(a)
	for i := range r.Addresses {
		r.Addresses[i].Value = bytes.Clone(r.Addresses[i].Value)
	}
}

// keep gives an answer memory of its own.
func keep(a *gnrswire.Message) { a.Requester.Value = bytes.Clone(a.Requester.Value) }

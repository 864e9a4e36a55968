package gnrs

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/mobilityfirst/record"
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
// what is no question, and to a write that has to wait for the disk.
func (s *Server) answer(b []byte, from netip.AddrPort, asked []byte, now time.Time) (to netip.AddrPort, out []byte) {
	m, err := gnrswire.Parse(asked)
	if err != nil || m.Answer || len(m.Requester.Value) > maxRequester {
		s.malformed.Add(1)
		return from, nil
	}
	to = from
	if at, is := m.Requester.AddrPort(); is && at.Addr() == from.Addr().Unmap() && at.Port() != 0 {
		to = at // the original's hosts may ask from another port than they listen at
	}
	a := &gnrswire.Message{Version: m.Version, Kind: m.Kind, Answer: true, Request: m.Request, Requester: m.Requester}
	code, waits := TooOften, false
	switch {
	case m.Kind == gnrswire.Lookup:
		if !s.askers.allow(from.Addr(), asks, now) {
			return to, nil // telling would cost as much as answering
		}
		s.lookups.Add(1)
		code = s.lookup(m, a, to, now)
	case s.askers.allow(from.Addr(), writes, now):
		s.written.Add(1)
		code, waits = s.write(m, a, from, to, now)
	}
	if waits {
		return to, nil
	}
	s.conclude(a, code)
	if b, err = a.AppendTo(b); err != nil {
		s.lines.Warn(s.Log, "an answer cannot be written", "error", err)
		return to, nil
	}
	return to, b
}

// conclude ends an answer.
func (s *Server) conclude(a *gnrswire.Message, code Code) {
	a.Code = uint16(code)
	s.answers[code].Add(1)
}

// lookup puts into the answer where a name is. Who wants to be told of changes is noted before: none is
// missed between.
func (s *Server) lookup(m, a *gnrswire.Message, to netip.AddrPort, now time.Time) Code {
	if has(m, optionWatch, 0) && s.watches.add(m.GUID, to, m.Request, now, keepFor) {
		a.Options = append(a.Options, gnrswire.Option{Kind: optionWatch})
	}
	b, found, err := s.Store.Get(nil, m.GUID)
	if err != nil {
		s.lines.Warn(s.Log, "a name cannot be read", "name", m.GUID, "error", err)
		return Failed
	}
	if !found {
		return NotFound
	}
	r, err := record.Parse(b)
	switch {
	case err != nil:
		s.lines.Warn(s.Log, "a name cannot be read", "name", m.GUID, "error", err)
		return Failed
	case r.Over(now):
		return NotFound
	}
	if has(m, optionProof, proofSize) {
		r.Into(a)
	} else {
		a.Addresses = fitting(r.Addresses)
	}
	left := min(time.Unix(r.Until, 0).Sub(now), keepFor)
	a.Options = append(a.Options, gnrswire.Option{Kind: gnrswire.TimeToLive, Value: seconds(left)})
	return OK
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

// seconds is a time as options have it.
func seconds(d time.Duration) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(max(d/time.Second, 0)))
}

// write has a record written, if its owner has signed it. It says whether the answer waits for the
// disk.
func (s *Server) write(m, a *gnrswire.Message, from, to netip.AddrPort, now time.Time) (code Code, waits bool) {
	r, is, err := record.FromMessage(m, m.GUID)
	switch {
	case !is:
		return Unsigned, false
	case err == nil:
		err = r.Verify(now)
	}
	if err != nil {
		return codeOf(err), false
	}
	_, there, err := s.Store.Get(nil, m.GUID)
	if err == nil && !there && !s.askers.allow(from.Addr(), newNames, now) {
		return TooOften, false
	}
	own(r, a)
	name := m.GUID
	if err == nil {
		err = s.Store.Start(r, func(changed bool, err error) {
			if changed {
				s.watches.change(name)
			}
			s.conclude(a, s.codeOf(name, err))
			s.later(s.writes, to, a)
		})
	}
	if err != nil {
		return s.codeOf(name, err), false
	}
	return OK, true
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
	a.Requester.Value = bytes.Clone(a.Requester.Value)
	for i := range r.Addresses {
		r.Addresses[i].Value = bytes.Clone(r.Addresses[i].Value)
	}
}

package host

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/stream"
)

// maxSessions is how many sessions of one name are remembered.
const maxSessions = 64

// session is the chunks from one name to another, in whichever streams they come: each is given to the
// receiver once.
type session struct {
	to     frame.GUID
	number uint64
	used   time.Time
	// confirmed is whether who sends has shown that it receives where it says that it is.
	confirmed bool
	last      uint64      // the number of the last chunk that was delivered
	in        *incoming   // the stream that carries it now, nil for none
	chunks    []*delivery // from the first that is not taken on
	// taken are the numbers of chunks behind last that are taken, while others before them are to come again.
	taken map[uint64]struct{}
}

// delivery is a chunk that was given to its receiver. While it is remembered overhead is taken for it.
type delivery struct {
	number  uint64       // in its session
	stream  frame.Stream // in which it has come last
	end     uint64       // behind its last frame there
	taken   bool
	account *account
}

// maxTaken is how many numbers of chunks a session remembers that were taken before others.
const maxTaken = 1024

// session is that of what comes for a name of ours. If there are too many, the one that was used least
// lately is forgotten of those of which nothing is left.
func (n *neighbour) session(to frame.GUID, number uint64, now time.Time) *session {
	oldest := -1
	for i, s := range n.sessions {
		if s.to == to && s.number == number {
			return s
		}
		if s.in == nil && len(s.chunks) == 0 && (oldest < 0 || s.used.Before(n.sessions[oldest].used)) {
			oldest = i
		}
	}
	s := &session{to: to, number: number, used: now}
	if len(n.sessions) >= maxSessions && oldest >= 0 {
		n.sessions[oldest] = s
	} else {
		n.sessions = append(n.sessions, s)
	}
	return s
}

// needed says whether it may not be forgotten.
func (n *neighbour) needed() bool {
	return slices.ContainsFunc(n.sessions, func(s *session) bool { return s.in != nil || len(s.chunks) > 0 })
}

// deliver gives a chunk to its receiver, unless that has it already.
func (s *session) deliver(in *incoming, c stream.Chunk) {
	if c.Number <= s.last {
		if i, is := s.find(c.Number); is {
			s.chunks[i].stream, s.chunks[i].end = in.receiver.Stream, c.End
		} else {
			in.receiver.Take(c.End) // and so are all before it
		}
		in.giveBack(len(c.Payload))
		return
	}
	s.last = c.Number
	d := &delivery{number: c.Number, stream: in.receiver.Stream, end: c.End, account: in.account}
	s.chunks = append(s.chunks, d)
	if _, d.taken = s.taken[c.Number]; d.taken {
		in.host.release(in.account, len(c.Payload))
		s.advance(in.host)
		return
	}
	in.host.counters.Delivered++
	in.endpoint.held += len(c.Payload)
	in.endpoint.deliver(&Received{From: c.Source.GUID, Service: c.Service, Payload: c.Payload, host: in.host, session: s, endpoint: in.endpoint, delivery: d, bytes: len(c.Payload)})
}

// advance tells the sender of chunks that are taken, as far as those before them are.
func (s *session) advance(h *Host) {
	any := false
	for len(s.chunks) > 0 && s.chunks[0].taken {
		d := s.chunks[0]
		if s.in != nil && s.in.receiver.Stream == d.stream {
			s.in.receiver.Take(d.end)
		}
		delete(s.taken, d.number)
		h.release(d.account, overhead)
		s.chunks[0] = nil
		s.chunks, any = s.chunks[1:], true
	}
	if any && s.in != nil {
		s.in.link.acknowledge(s.in)
	}
}

// detach is for what a receiver does not take, from a chunk on: it comes again.
func (s *session) detach(h *Host, from uint64) {
	i, _ := s.find(from)
	if i == len(s.chunks) {
		return
	}
	s.last = s.chunks[i].number - 1
	if s.taken == nil || len(s.taken) > maxTaken {
		s.taken = map[uint64]struct{}{}
	}
	for _, d := range s.chunks[i:] {
		if d.taken {
			s.taken[d.number] = struct{}{}
		}
		h.release(d.account, overhead)
	}
	clear(s.chunks[i:])
	s.chunks = s.chunks[:i]
}

// find is where a chunk stands in chunks, or would.
func (s *session) find(number uint64) (int, bool) {
	return slices.BinarySearchFunc(s.chunks, number, func(d *delivery, number uint64) int { return cmp.Compare(d.number, number) })
}

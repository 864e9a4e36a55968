package host

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/stream"
)

// maxSessions limits the sessions that are remembered of one name.
const maxSessions = 64

// session holds the state of the chunks from one name to another, in whichever streams they come.
// It delivers each chunk to the receiver once.
type session struct {
	to       frame.GUID
	number   uint64
	lastUsed time.Time
	// confirmed is set once the sender has proven that it receives frames at its address.
	confirmed bool
	last      uint64      // the number of the last delivered chunk
	in        *incoming   // the current stream, nil for none
	chunks    []*delivery // the delivered chunks, from the first that has not been taken over
	// taken holds the numbers after last of chunks that have been taken over although earlier
	// chunks have to come again.
	taken map[uint64]struct{}
}

// delivery is a chunk that was delivered to its receiver. As long as it exists, overhead bytes are
// allocated for it.
type delivery struct {
	number  uint64       // its number in the session
	stream  frame.Stream // the stream in which it was last received
	end     uint64       // the End of the chunk in that stream
	taken   bool
	account *account
}

// maxTaken limits the numbers in session.taken.
const maxTaken = 1024

// session returns the session of chunks for one of the host's names, and creates it if there is
// none. If there are too many, it replaces the least recently used session without chunks.
func (n *neighbour) session(to frame.GUID, number uint64, now time.Time) *session {
	oldest := -1
	for i, s := range n.sessions {
		if s.to == to && s.number == number {
			return s
		}
		if s.in == nil && len(s.chunks) == 0 && (oldest < 0 || s.lastUsed.Before(n.sessions[oldest].lastUsed)) {
			oldest = i
		}
	}
	s := &session{to: to, number: number, lastUsed: now}
	if len(n.sessions) >= maxSessions && oldest >= 0 {
		n.sessions[oldest] = s
	} else {
		n.sessions = append(n.sessions, s)
	}
	return s
}

// inUse reports whether the neighbour has a session with chunks, so that it must not be removed.
func (n *neighbour) inUse() bool {
	return slices.ContainsFunc(n.sessions, func(s *session) bool { return s.in != nil || len(s.chunks) > 0 })
}

// deliver delivers a chunk to its receiver, unless it has been delivered before.
func (s *session) deliver(in *incoming, c stream.Chunk) {
	if c.Number <= s.last {
		if i, ok := s.find(c.Number); ok {
			s.chunks[i].stream, s.chunks[i].end = in.receiver.Stream, c.End
		} else {
			in.receiver.Take(c.End) // the chunk has been taken over, and so have all before it
		}
		in.releaseChunk(len(c.Payload))
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
	in.endpoint.untakenBytes += len(c.Payload)
	in.endpoint.deliver(&Received{From: c.Source.GUID, Service: c.Service, Payload: c.Payload, host: in.host, session: s, endpoint: in.endpoint, delivery: d, bytes: len(c.Payload)})
}

// advance acknowledges to the sender the chunks that have been taken over, up to the first that has
// not.
func (s *session) advance(h *Host) {
	advanced := false
	for len(s.chunks) > 0 && s.chunks[0].taken {
		d := s.chunks[0]
		if s.in != nil && s.in.receiver.Stream == d.stream {
			s.in.receiver.Take(d.end)
		}
		delete(s.taken, d.number)
		h.release(d.account, overhead)
		s.chunks[0] = nil
		s.chunks, advanced = s.chunks[1:], true
	}
	if advanced && s.in != nil {
		s.in.link.acknowledge(s.in)
	}
}

// discardFrom forgets the chunks from a number on, which the receiver does not take: the sender
// sends them again.
func (s *session) discardFrom(h *Host, from uint64) {
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

// find returns the index of a chunk in chunks, or the index where it would be inserted, and reports
// whether it is there.
func (s *session) find(number uint64) (int, bool) {
	return slices.BinarySearchFunc(s.chunks, number, func(d *delivery, number uint64) int { return cmp.Compare(d.number, number) })
}

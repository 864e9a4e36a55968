package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Errors of a Sender, which wrap them.
var (
	// ErrFull is for a chunk for which there is no room: wait for chunks that are taken.
	ErrFull = errors.New("too much waits to be sent")
	// ErrViolation is for frames of the other end that contradict what both have said before.
	ErrViolation = errors.New("protocol violation")
)

// SenderConfig is what a Sender works with.
type SenderConfig struct {
	// Stream has to be drawn at random: who knows it can send in its place.
	Stream frame.Stream
	// Payload is how many bytes of a chunk a frame carries, from 512 on: the link's MTU without
	// frame.StreamDataSize.
	Payload int
	// Queue is how many bytes of chunks may wait until they are taken.
	Queue int
}

// Sender is the end of a stream that sends.
type Sender struct {
	SenderConfig
	// Sent counts the frames that were given to be sent, Again those of them that were before.
	Sent, Again uint64

	chunks []chunk // not taken, oldest first
	queued int     // bytes of them
	sent   flight
	limit  uint64  // the first frame for which the receiver has no room
	end    uint64  // behind the last frame of all chunks
	paths  []*Path // at least one
}

// chunk is one with its header, cut into frames.
type chunk struct {
	first, end uint64
	head       []byte // its number and header
	payload    []byte
}

// MaxWindow is for how many frames a receiver has room at most.
const MaxWindow = 4096

func (c *chunk) size() int { return len(c.head) + len(c.payload) }

// firstLimit is for how many frames there is room before the receiver has said so.
const firstLimit = 32

// NewSender returns one that has sent nothing, and goes by one path.
func NewSender(c SenderConfig, p *Path) *Sender {
	return &Sender{SenderConfig: c, limit: firstLimit, paths: []*Path{p}}
}

// Push queues a chunk, and keeps its payload, which must stay as it is until the chunk is taken. Its number
// is to be higher than that of the one before. ChunkSize of its header is set here. It fails, and nothing changes, with ErrFull, or if the header can't be written or does not
// fit into one frame.
func (s *Sender) Push(number uint64, h frame.RoutingHeader, payload []byte) error {
	size := numberSize + h.Size()
	if s.queued > 0 && s.queued+size+len(payload) > s.Queue {
		return fmt.Errorf("chunk of %d bytes behind %d: %w", len(payload), s.queued, ErrFull)
	}
	if size > s.Payload {
		return fmt.Errorf("chunk with a header of %d bytes in frames of %d: %w", size, s.Payload, frame.ErrLayout)
	}
	h.ChunkSize = uint32(len(payload))
	head, err := h.AppendTo(binary.BigEndian.AppendUint64(make([]byte, 0, size), number))
	if err != nil {
		return err
	}
	c := chunk{head: head, payload: payload}
	s.cut(&c)
	s.chunks = append(s.chunks, c)
	s.queued += c.size()
	return nil
}

// numberSize is how many bytes a chunk's number takes.
const numberSize = 8

// Queued is how many bytes of chunks, with their headers, have not been taken.
func (s *Sender) Queued() int { return s.queued }

// Chunks is how many chunks have not been taken.
func (s *Sender) Chunks() int { return len(s.chunks) }

// Begun says whether a frame was sent since the stream has its number.
func (s *Sender) Begun() bool { return s.sent.end() > 0 }

// Restart begins the next stream, with another Payload, with the chunks that have not been taken: for a
// receiver that does not know the stream any more.
func (s *Sender) Restart(payload int) {
	if s.Begun() {
		s.Stream = s.Stream.Next()
	}
	s.Payload, s.end = payload, 0
	for i := range s.chunks {
		s.cut(&s.chunks[i])
	}
	s.sent, s.limit = flight{}, firstLimit
	for _, p := range s.paths {
		p.reset()
	}
}

// Reset is Restart for a receiver that says up to where it has taken what was sent.
func (s *Sender) Reset(taken uint64) {
	s.take(min(taken, s.sent.end()))
	s.Restart(s.Payload)
}

// Abandon gives up the first chunks of those that have not been taken. If not all of their frames have
// come, it begins the next stream.
func (s *Sender) Abandon(n int) {
	come := n > 0 && s.chunks[n-1].end <= s.sent.base
	for _, c := range s.chunks[:n] {
		s.queued -= c.size()
	}
	s.chunks = slices.Delete(s.chunks, 0, n)
	if n > 0 && !come {
		s.Restart(s.Payload)
	}
}

// cut gives a chunk the numbers that are next.
func (s *Sender) cut(c *chunk) {
	c.first = s.end
	c.end = s.end + uint64((c.size()+s.Payload-1)/s.Payload)
	s.end = c.end
}

// Send gives the frames that may go by a path now, at most so many: those that were lost first. What they
// hold stays valid until their chunks are taken.
func (s *Sender) Send(p *Path, now time.Time, most int) (all []frame.StreamData) {
	for len(all) < most && s.may(p) {
		n, again := s.sent.lost()
		if !again {
			if n = s.sent.end(); n >= min(s.limit, s.end) {
				break
			}
		}
		if s.Sent++; again {
			s.Again++
		}
		all = append(all, frame.StreamData{Stream: s.Stream, Number: n, Fresh: s.sent.base == 0, Payload: s.part(n)})
		s.sent.send(p, n, now)
		all[len(all)-1].Blocked = n+1 == s.limit && s.end > s.limit && !p.full()
	}
	p.window.used(p.under)
	if len(all) > 0 {
		p.due = time.Time{}
		s.await(now)
	}
	return all
}

// Query says whether the receiver is to be asked by a path what has come, once for each time that it is due.
func (s *Sender) Query(p *Path) (q frame.StreamQuery, ask bool) {
	ask, p.query = p.query, false
	return frame.StreamQuery{Stream: s.Stream}, ask
}

// part is what a frame carries.
func (s *Sender) part(n uint64) []byte {
	lo, hi := 0, len(s.chunks) // chunks[lo] begins at n or before, and chunks[hi] behind it
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; s.chunks[mid].first <= n {
			lo = mid
		} else {
			hi = mid
		}
	}
	c := s.chunks[lo]
	at := int(n-c.first) * s.Payload
	if at < len(c.head) { // and with it the start of the payload
		return append(c.head[:len(c.head):len(c.head)], c.payload[:min(s.Payload-len(c.head), len(c.payload))]...)
	}
	at -= len(c.head)
	return c.payload[at:min(at+s.Payload, len(c.payload))]
}

// Ack takes what the receiver says. One that is older than what is known says nothing; one that
// contradicts what was sent is an ErrViolation, and changes nothing.
func (s *Sender) Ack(a *frame.StreamAck, now time.Time) error {
	if a.Next > s.sent.end() || a.Taken > a.Next || a.Limit < a.Next {
		return fmt.Errorf("acknowledgement of %d, %d taken, room until %d, with %d sent: %w", a.Next, a.Taken, a.Limit, s.sent.end(), ErrViolation)
	}
	at := a.Next
	for _, r := range a.Ranges {
		if at += uint64(r.Skip) + uint64(r.Count); r.Skip == 0 || r.Count == 0 || at > s.sent.end() {
			return fmt.Errorf("acknowledgement of frames until %d with %d sent: %w", at, s.sent.end(), ErrViolation)
		}
	}
	if a.Next < s.sent.base {
		return nil
	}
	s.limit = max(s.limit, min(a.Limit, a.Next+MaxWindow))
	s.take(a.Taken)
	for _, p := range s.paths {
		p.got = arrival{}
	}
	s.sent.acked(a)
	alone := len(s.paths) == 1
	for _, p := range s.paths {
		if p.got.frames > 0 {
			p.took(&s.sent, alone, now)
		}
		if p.got.frames > 0 || alone {
			p.due = time.Time{}
		}
	}
	s.await(now)
	return nil
}

// take forgets the chunks that are the receiver's.
func (s *Sender) take(until uint64) {
	for len(s.chunks) > 0 && s.chunks[0].end <= until {
		s.queued -= s.chunks[0].size()
		s.chunks[0] = chunk{}
		s.chunks = s.chunks[1:]
	}
}

package stream

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/mobilityfirst/frame"
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
	// Stream is its number. It has to be drawn at random: who knows it can send in its place.
	Stream uint64
	// Payload is how many bytes of a chunk a frame carries, from 512 on: the link's MTU without
	// frame.StreamDataSize.
	Payload int
	// Queue is how many bytes of chunks may wait until they are taken.
	Queue int
}

// Sender is the end of a stream that sends.
type Sender struct {
	SenderConfig
	chunks []chunk // not taken, oldest first
	queued int     // bytes of them
	sent   flight
	limit  uint64 // the first frame for which the receiver has no room
	end    uint64 // behind the last frame of all chunks
	window window
	rtt    roundTrip
	due    time.Time // when the receiver has been silent too long; zero while nothing is awaited
	query  bool      // it is to be asked
}

// chunk is one with its header, cut into frames.
type chunk struct {
	first, end uint64
	bytes      []byte
}

// firstLimit is for how many frames there is room before the receiver has said so.
const firstLimit = 32

// NewSender returns one that has sent nothing.
func NewSender(c SenderConfig) *Sender {
	return &Sender{SenderConfig: c, limit: firstLimit, window: newWindow()}
}

// Push queues a chunk. ChunkSize of its header is set here. It fails, and nothing changes, with
// ErrFull, or if the header can't be written or does not fit into one frame.
func (s *Sender) Push(h frame.RoutingHeader, payload []byte) error {
	size := h.Size()
	if s.queued > 0 && s.queued+size+len(payload) > s.Queue {
		return fmt.Errorf("chunk of %d bytes behind %d: %w", len(payload), s.queued, ErrFull)
	}
	if size > s.Payload {
		return fmt.Errorf("chunk with a header of %d bytes in frames of %d: %w", size, s.Payload, frame.ErrLayout)
	}
	h.ChunkSize = uint32(len(payload))
	b, err := h.AppendTo(make([]byte, 0, size+len(payload)))
	if err != nil {
		return err
	}
	b = append(b, payload...)
	frames := (len(b) + s.Payload - 1) / s.Payload
	s.chunks = append(s.chunks, chunk{s.end, s.end + uint64(frames), b})
	s.end += uint64(frames)
	s.queued += len(b)
	return nil
}

// Queued is how many bytes of chunks, with their headers, have not been taken.
func (s *Sender) Queued() int { return s.queued }

// Send gives the frames that may go now, at most so many: those that were lost first. What they
// hold stays valid until their chunks are taken.
func (s *Sender) Send(now time.Time, most int) (all []frame.StreamData) {
	for len(all) < most && s.sent.under < s.window.size() {
		n, again := s.sent.lost()
		if !again {
			if n = s.sent.end(); n >= min(s.limit, s.end) {
				break
			}
		}
		all = append(all, frame.StreamData{Stream: s.Stream, Number: n, Payload: s.part(n)})
		s.sent.send(n, now)
	}
	s.window.used(s.sent.under)
	if len(all) > 0 {
		s.await(now)
	}
	return all
}

// Query says whether the receiver is to be asked what has come, once for each time that it is due.
func (s *Sender) Query() (q frame.StreamQuery, ask bool) {
	ask, s.query = s.query, false
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
	return c.bytes[at:min(at+s.Payload, len(c.bytes))]
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
	s.limit = max(s.limit, a.Limit)
	s.take(a.Taken)
	got := s.sent.acked(a)
	if got.frames > 0 {
		if got.measured {
			s.rtt.measure(now.Sub(got.at))
		}
		s.rtt.tries = 0
		s.window.grow(got.frames)
		s.window.missed(s.sent.miss(got.order), s.sent.orders)
	}
	s.await(now)
	return nil
}

// take forgets the chunks that are the receiver's.
func (s *Sender) take(until uint64) {
	for len(s.chunks) > 0 && s.chunks[0].end <= until {
		s.queued -= len(s.chunks[0].bytes)
		s.chunks[0] = chunk{}
		s.chunks = s.chunks[1:]
	}
}

// await sets until when something has to come from the receiver.
func (s *Sender) await(now time.Time) {
	s.due = time.Time{}
	if len(s.chunks) > 0 {
		s.due = now.Add(s.rtt.patience())
	}
}

// Deadline is when Expire is to be called, unless there is an acknowledgement before; zero for not
// at all.
func (s *Sender) Deadline() time.Time { return s.due }

// Expire is for a receiver that has been silent until the deadline: all that is under way counts as
// lost, and the receiver is asked if it was not known to have room or all frames have come.
func (s *Sender) Expire(now time.Time) {
	if s.due.IsZero() || now.Before(s.due) {
		return
	}
	s.rtt.tries++
	if s.sent.under > 0 {
		s.sent.allLost()
		s.window.collapse()
	} else {
		s.query = true
	}
	s.await(now)
}

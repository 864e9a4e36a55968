package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Errors that a Sender wraps.
var (
	// ErrFull means that the queue has no room for a chunk. The caller has to wait until chunks
	// have been taken over.
	ErrFull = errors.New("the send queue is full")
	// ErrViolation means that frames of the other end contradict earlier ones.
	ErrViolation = errors.New("protocol violation")
)

// SenderConfig configures a Sender.
type SenderConfig struct {
	// Stream must be random: a host that knows it can send in this sender's place.
	Stream frame.Stream
	// Payload is the number of bytes of a chunk in each frame, at least 512: the link's MTU without
	// frame.StreamDataSize.
	Payload int
	// Queue is the maximum number of bytes of chunks that wait until they are taken over.
	Queue int
}

// Sender is the sending end of a stream.
type Sender struct {
	SenderConfig
	// Sent counts the frames that Send has returned, and Retransmitted those of them that were sent
	// again.
	Sent, Retransmitted uint64

	chunks []chunk // not taken over yet, oldest first
	queued int     // the size of chunks in bytes
	sent   flight
	limit  uint64  // the first frame for which the receiver has no room
	end    uint64  // one more than the last frame of all chunks
	paths  []*Path // at least one
}

// chunk is a chunk with its header, cut into frames.
type chunk struct {
	first, end uint64
	head       []byte // the chunk's number and header
	payload    []byte
}

// MaxWindow is the maximum number of frames for which a receiver has room.
const MaxWindow = 4096

func (c *chunk) size() int { return len(c.head) + len(c.payload) }

// initialLimit is the number of frames that may be sent before the receiver has announced a limit.
const initialLimit = 32

// NewSender returns a Sender that has sent nothing and uses one path.
func NewSender(c SenderConfig, p *Path) *Sender {
	return &Sender{SenderConfig: c, limit: initialLimit, paths: []*Path{p}}
}

// Push queues a chunk. It keeps the payload, which must not change until the chunk is taken over.
// The number must be higher than that of the chunk before. Push sets the header's ChunkSize. It
// returns an error that wraps ErrFull if the queue is full, and another error if the header cannot
// be encoded or does not fit into one frame; the sender then does not change.
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

// numberSize is the size in bytes of a chunk's number.
const numberSize = 8

// Queued returns the number of bytes, including headers, of the chunks that have not been taken
// over.
func (s *Sender) Queued() int { return s.queued }

// Chunks returns the number of chunks that have not been taken over.
func (s *Sender) Chunks() int { return len(s.chunks) }

// Started reports whether a frame of the current stream has been sent.
func (s *Sender) Started() bool { return s.sent.end() > 0 }

// Restart begins the next stream, with another Payload, for a receiver that no longer knows the
// current stream. The next stream contains the chunks that have not been taken over.
func (s *Sender) Restart(payload int) {
	if s.Started() {
		s.Stream = s.Stream.Next()
	}
	s.Payload, s.end = payload, 0
	for i := range s.chunks {
		s.cut(&s.chunks[i])
	}
	s.sent, s.limit = flight{}, initialLimit
	for _, p := range s.paths {
		p.reset()
	}
}

// Reset restarts the stream for a receiver that has reported up to which frame it has taken over
// chunks.
func (s *Sender) Reset(taken uint64) {
	s.take(min(taken, s.sent.end()))
	s.Restart(s.Payload)
}

// Abandon gives up the first n of the chunks that have not been taken over. If not all of their
// frames have been received, it begins the next stream.
func (s *Sender) Abandon(n int) {
	complete := n > 0 && s.chunks[n-1].end <= s.sent.base
	for _, c := range s.chunks[:n] {
		s.queued -= c.size()
	}
	s.chunks = slices.Delete(s.chunks, 0, n)
	if n > 0 && !complete {
		s.Restart(s.Payload)
	}
}

// cut assigns the next frame numbers to a chunk.
func (s *Sender) cut(c *chunk) {
	c.first = s.end
	c.end = s.end + uint64((c.size()+s.Payload-1)/s.Payload)
	s.end = c.end
}

// Send returns up to limit frames that may be sent by a path now, lost frames first. Their payloads
// stay valid until their chunks are taken over.
func (s *Sender) Send(p *Path, now time.Time, limit int) (all []frame.StreamData) {
	for len(all) < limit && s.maySend(p) {
		n, retransmission := s.sent.nextLost()
		if !retransmission {
			if n = s.sent.end(); n >= min(s.limit, s.end) {
				break
			}
		}
		if s.Sent++; retransmission {
			s.Retransmitted++
		}
		all = append(all, frame.StreamData{Stream: s.Stream, Number: n, Fresh: s.sent.base == 0, Payload: s.part(n)})
		s.sent.send(p, n, now)
		all[len(all)-1].Blocked = n+1 == s.limit && s.end > s.limit && !p.isFull()
	}
	p.window.setUsed(p.inFlight)
	if len(all) > 0 {
		p.deadline = time.Time{}
		s.setDeadlines(now)
	}
	return all
}

// Query returns a query, and reports whether it has to be sent by the path. It does so once for
// each time that a query is due.
func (s *Sender) Query(p *Path) (q frame.StreamQuery, ask bool) {
	ask, p.query = p.query, false
	return frame.StreamQuery{Stream: s.Stream}, ask
}

// part returns the payload of a frame.
func (s *Sender) part(n uint64) []byte {
	lo, hi := 0, len(s.chunks) // chunks[lo] begins at n or before it, and chunks[hi] behind it
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; s.chunks[mid].first <= n {
			lo = mid
		} else {
			hi = mid
		}
	}
	c := s.chunks[lo]
	at := int(n-c.first) * s.Payload
	if at < len(c.head) { // the frame has the header and the start of the payload
		return append(c.head[:len(c.head):len(c.head)], c.payload[:min(s.Payload-len(c.head), len(c.payload))]...)
	}
	at -= len(c.head)
	return c.payload[at:min(at+s.Payload, len(c.payload))]
}

// Ack handles an acknowledgement. It ignores one that is older than the current state. If the
// acknowledgement contradicts what was sent, Ack returns an error that wraps ErrViolation and
// changes nothing.
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
		p.newAcks = ackedFrames{}
	}
	s.sent.acked(a)
	alone := len(s.paths) == 1
	for _, p := range s.paths {
		if p.newAcks.count > 0 {
			p.handleAcks(&s.sent, alone, now)
		}
		if p.newAcks.count > 0 || alone {
			p.deadline = time.Time{}
		}
	}
	s.setDeadlines(now)
	return nil
}

// take removes the chunks that the receiver has taken over.
func (s *Sender) take(until uint64) {
	for len(s.chunks) > 0 && s.chunks[0].end <= until {
		s.queued -= s.chunks[0].size()
		s.chunks[0] = chunk{}
		s.chunks = s.chunks[1:]
	}
}

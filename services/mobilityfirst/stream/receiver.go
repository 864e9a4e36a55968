package stream

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// ReceiverConfig is what a Receiver works with.
type ReceiverConfig struct {
	Stream frame.Stream
	// Window is for how many frames behind the first missing one there is room at first, from 32,
	// which a sender may use before it is told, to MaxWindow.
	Window int
	// Widen says whether there is memory for more frames, so many in all, where a sender would use them. Nil for
	// never.
	Widen func(window int) bool
	// MaxChunk is how many bytes a chunk has at most.
	MaxChunk uint32
	// Reserve says whether there is memory for a chunk of so many bytes. While there is not, the
	// stream waits, until Resume. The caller has it back when it gives the chunk away.
	Reserve func(bytes int) bool
}

// Chunk is one that has come whole.
type Chunk struct {
	// Number is higher than that of the chunk before, and the same in all streams of a session.
	Number uint64
	frame.RoutingHeader
	Payload []byte
	// End is behind its last frame: for Take.
	End uint64
}

// Receiver is the end of a stream that receives.
type Receiver struct {
	ReceiverConfig
	next  uint64   // the first frame that is missing, or waits for memory
	early [][]byte // frames from next on that have come, by their number modulo Window
	ahead int      // how many of them there are
	taken uint64
	wide  uint64 // the first frame for which there was no room when the window was made as large as it is
	part  *Chunk // begun, and not whole
}

// NewReceiver returns one to which nothing has come.
func NewReceiver(c ReceiverConfig) *Receiver {
	return &Receiver{ReceiverConfig: c, early: make([][]byte, c.Window), wide: uint64(c.Window)}
}

// Data takes a frame, and gives the chunks that are whole with it. What is kept of the frame is
// copied. The error wraps ErrViolation, frame.ErrLayout or frame.ErrShort, or is a *TooLarge: the stream
// is over then, and the sender is to be told.
func (r *Receiver) Data(d *frame.StreamData) ([]Chunk, error) {
	switch {
	case d.Number < r.next:
		return nil, nil // once more
	case d.Number-r.next >= uint64(r.Window):
		return nil, fmt.Errorf("frame %d, with room until %d: %w", d.Number, r.next+uint64(r.Window), ErrViolation)
	case len(d.Payload) == 0:
		return nil, fmt.Errorf("frame %d without payload: %w", d.Number, ErrViolation)
	}
	if d.Blocked && d.Number+1 >= r.wide {
		r.widen()
	}
	slot := &r.early[d.Number%uint64(r.Window)]
	if d.Number > r.next {
		if *slot == nil {
			*slot = append([]byte{}, d.Payload...)
			r.ahead++
		}
		return nil, nil
	}
	if *slot != nil { // it waits for memory
		return r.follow(nil)
	}
	all, accepted, err := r.accept(nil, d.Payload)
	if err != nil || !accepted {
		if err == nil {
			*slot = append([]byte{}, d.Payload...)
			r.ahead++
		}
		return all, err
	}
	return r.follow(all)
}

// widen makes room for twice as many frames, if there is memory.
func (r *Receiver) widen() {
	window := min(2*r.Window, MaxWindow)
	if window == r.Window || r.Widen == nil || !r.Widen(window) {
		return
	}
	early := make([][]byte, window)
	for n := r.next; n < r.next+uint64(r.Window); n++ {
		early[n%uint64(window)] = r.early[n%uint64(r.Window)]
	}
	r.early, r.Window, r.wide = early, window, r.next+uint64(window)
}

// Resume goes on where there was no memory.
func (r *Receiver) Resume() ([]Chunk, error) { return r.follow(nil) }

// follow accepts the frames that have come early and are next now.
func (r *Receiver) follow(all []Chunk) ([]Chunk, error) {
	for r.ahead > 0 {
		slot := &r.early[r.next%uint64(r.Window)]
		if *slot == nil {
			break
		}
		var accepted bool
		var err error
		if all, accepted, err = r.accept(all, *slot); err != nil || !accepted {
			return all, err
		}
		*slot = nil
		r.ahead--
	}
	return all, nil
}

// firstPayload is how much memory is taken for a chunk before more of it has come.
const firstPayload = 256 << 10

// accept takes the frame that is next, unless there is no memory for the chunk that it begins.
func (r *Receiver) accept(all []Chunk, payload []byte) (_ []Chunk, accepted bool, err error) {
	if r.part == nil {
		number, h, rest, err := Begin(payload)
		if err != nil {
			return all, false, fmt.Errorf("frame %d: %w", r.next, err)
		}
		if h.ChunkSize > r.MaxChunk {
			return all, false, &TooLarge{h.ChunkSize, r.MaxChunk}
		}
		if !r.Reserve(int(h.ChunkSize)) {
			return all, false, nil
		}
		for i := range h.Extensions {
			h.Extensions[i].Body = append([]byte{}, h.Extensions[i].Body...)
		}
		r.part, payload = &Chunk{Number: number, RoutingHeader: h, Payload: make([]byte, 0, min(h.ChunkSize, firstPayload))}, rest
	}
	if len(r.part.Payload)+len(payload) > int(r.part.ChunkSize) {
		return all, false, fmt.Errorf("frame %d goes beyond its chunk of %d bytes: %w", r.next, r.part.ChunkSize, ErrViolation)
	}
	if p := r.part.Payload; len(p)+len(payload) > cap(p) {
		r.part.Payload = append(make([]byte, 0, min(2*cap(p)+len(payload), int(r.part.ChunkSize))), p...)
	}
	r.part.Payload = append(r.part.Payload, payload...)
	r.next++
	if len(r.part.Payload) == int(r.part.ChunkSize) {
		r.part.End = r.next
		all = append(all, *r.part)
		r.part = nil
	}
	return all, true, nil
}

// Begin reads what stands at the start of a chunk's first frame, and gives what stands behind it. The
// error wraps frame.ErrShort or frame.ErrLayout.
func Begin(b []byte) (number uint64, h frame.RoutingHeader, payload []byte, err error) {
	if len(b) < numberSize {
		return 0, h, nil, fmt.Errorf("chunk's number in %d bytes: %w", len(b), frame.ErrShort)
	}
	h, payload, err = frame.ParseRouting(b[numberSize:])
	return binary.BigEndian.Uint64(b), h, payload, err
}

// TooLarge is for a chunk that is larger than may be.
type TooLarge struct{ Size, Most uint32 }

// Error implements error.
func (e *TooLarge) Error() string {
	return fmt.Sprintf("chunk of %d bytes: at most %d are taken", e.Size, e.Most)
}

// Reserved is how many bytes have been reserved for a chunk that is not whole: they are free when
// the receiver is given up.
func (r *Receiver) Reserved() int {
	if r.part == nil {
		return 0
	}
	return int(r.part.ChunkSize)
}

// Got is how many frames have come, each counted once.
func (r *Receiver) Got() uint64 { return r.next + uint64(r.ahead) }

// Take notes that a chunk, by its End, and those before it are the receiver's.
func (r *Receiver) Take(end uint64) { r.taken = max(r.taken, min(end, r.next)) }

// Ack is what to tell the sender.
func (r *Receiver) Ack() frame.StreamAck {
	a := frame.StreamAck{Stream: r.Stream, Next: r.next, Taken: r.taken, Limit: r.next + uint64(r.Window)}
	left := r.ahead
	if r.early[r.next%uint64(r.Window)] != nil {
		left-- // it waits for memory
	}
	for n, end := r.next+1, r.next; left > 0 && len(a.Ranges) < frame.MaxRanges; n++ {
		if r.early[n%uint64(r.Window)] == nil {
			continue
		}
		if n > end || len(a.Ranges) == 0 {
			a.Ranges = append(a.Ranges, frame.Range{Skip: uint16(n - end)})
		}
		a.Ranges[len(a.Ranges)-1].Count++
		end = n + 1
		left--
	}
	return a
}

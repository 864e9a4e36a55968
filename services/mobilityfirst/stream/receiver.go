package stream

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// ReceiverConfig configures a Receiver.
type ReceiverConfig struct {
	Stream frame.Stream
	// Window is the initial number of frames from the first missing one on for which there is room:
	// at least 32, which a sender may use without asking, and at most MaxWindow.
	Window int
	// GrowWindow reports whether there is memory for a window of this many frames. The receiver
	// calls it when a larger window would help the sender. Nil means that the window never grows.
	GrowWindow func(window int) bool
	// MaxChunk is the maximum size of a chunk in bytes.
	MaxChunk uint32
	// Reserve reports whether there is memory for a chunk of this many bytes, and reserves it.
	// While there is not, the stream waits until Resume is called. The caller releases the memory
	// when it gives the chunk away.
	Reserve func(bytes int) bool
}

// Chunk is a complete chunk.
type Chunk struct {
	// Number is higher than that of the chunk before, and the same in all streams of a session.
	Number uint64
	frame.RoutingHeader
	Payload []byte
	// End is one more than the number of its last frame. It is passed to Take.
	End uint64
}

// Receiver is the receiving end of a stream.
type Receiver struct {
	ReceiverConfig
	next     uint64   // the first frame that is missing, or waits for memory
	buffer   [][]byte // received frames from next on, by their number modulo Window
	buffered int      // the number of frames in buffer
	taken    uint64
	grownAt  uint64 // the end of the window when it last grew
	partial  *Chunk // incomplete
}

// NewReceiver returns a Receiver that has received nothing.
func NewReceiver(c ReceiverConfig) *Receiver {
	return &Receiver{ReceiverConfig: c, buffer: make([][]byte, c.Window), grownAt: uint64(c.Window)}
}

// Data handles a frame and returns the chunks that it completes. It copies the parts of the frame
// that it keeps. The error wraps ErrViolation, frame.ErrLayout or frame.ErrShort, or is a
// *TooLarge: the stream has then ended, and the caller has to tell the sender.
func (r *Receiver) Data(d *frame.StreamData) ([]Chunk, error) {
	switch {
	case d.Number < r.next:
		return nil, nil // a duplicate
	case d.Number-r.next >= uint64(r.Window):
		return nil, fmt.Errorf("frame %d, with room until %d: %w", d.Number, r.next+uint64(r.Window), ErrViolation)
	case len(d.Payload) == 0:
		return nil, fmt.Errorf("frame %d without payload: %w", d.Number, ErrViolation)
	}
	if d.Blocked && d.Number+1 >= r.grownAt {
		r.growWindow()
	}
	slot := &r.buffer[d.Number%uint64(r.Window)]
	if d.Number > r.next {
		if *slot == nil {
			*slot = append([]byte{}, d.Payload...)
			r.buffered++
		}
		return nil, nil
	}
	if *slot != nil { // the frame has already arrived, and waits for memory
		return r.acceptBuffered(nil)
	}
	all, accepted, err := r.accept(nil, d.Payload)
	if err != nil || !accepted {
		if err == nil {
			*slot = append([]byte{}, d.Payload...)
			r.buffered++
		}
		return all, err
	}
	return r.acceptBuffered(all)
}

// growWindow doubles the window if there is memory.
func (r *Receiver) growWindow() {
	window := min(2*r.Window, MaxWindow)
	if window == r.Window || r.GrowWindow == nil || !r.GrowWindow(window) {
		return
	}
	buffer := make([][]byte, window)
	for n := r.next; n < r.next+uint64(r.Window); n++ {
		buffer[n%uint64(window)] = r.buffer[n%uint64(r.Window)]
	}
	r.buffer, r.Window, r.grownAt = buffer, window, r.next+uint64(window)
}

// Resume continues a stream that waits for memory.
func (r *Receiver) Resume() ([]Chunk, error) { return r.acceptBuffered(nil) }

// acceptBuffered accepts the buffered frames that are next in order.
func (r *Receiver) acceptBuffered(all []Chunk) ([]Chunk, error) {
	for r.buffered > 0 {
		slot := &r.buffer[r.next%uint64(r.Window)]
		if *slot == nil {
			break
		}
		var accepted bool
		var err error
		if all, accepted, err = r.accept(all, *slot); err != nil || !accepted {
			return all, err
		}
		*slot = nil
		r.buffered--
	}
	return all, nil
}

// initialPayload is the memory in bytes that is allocated for a chunk before more of it has been
// received.
const initialPayload = 256 << 10

// accept accepts the next frame, unless there is no memory for the chunk that it begins.
func (r *Receiver) accept(all []Chunk, payload []byte) (_ []Chunk, accepted bool, err error) {
	if r.partial == nil {
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
		r.partial, payload = &Chunk{Number: number, RoutingHeader: h, Payload: make([]byte, 0, min(h.ChunkSize, initialPayload))}, rest
	}
	if len(r.partial.Payload)+len(payload) > int(r.partial.ChunkSize) {
		return all, false, fmt.Errorf("frame %d goes beyond its chunk of %d bytes: %w", r.next, r.partial.ChunkSize, ErrViolation)
	}
	if p := r.partial.Payload; len(p)+len(payload) > cap(p) {
		r.partial.Payload = append(make([]byte, 0, min(2*cap(p)+len(payload), int(r.partial.ChunkSize))), p...)
	}
	r.partial.Payload = append(r.partial.Payload, payload...)
	r.next++
	if len(r.partial.Payload) == int(r.partial.ChunkSize) {
		r.partial.End = r.next
		all = append(all, *r.partial)
		r.partial = nil
	}
	return all, true, nil
}

// Begin parses the start of a chunk's first frame: its number and header. It returns the bytes
// behind them as the payload. The error wraps frame.ErrShort or frame.ErrLayout.
func Begin(b []byte) (number uint64, h frame.RoutingHeader, payload []byte, err error) {
	if len(b) < numberSize {
		return 0, h, nil, fmt.Errorf("chunk's number in %d bytes: %w", len(b), frame.ErrShort)
	}
	h, payload, err = frame.ParseRouting(b[numberSize:])
	return binary.BigEndian.Uint64(b), h, payload, err
}

// TooLarge is the error for a chunk that exceeds the maximum size.
type TooLarge struct{ Size, Max uint32 }

// Error implements error.
func (e *TooLarge) Error() string {
	return fmt.Sprintf("chunk of %d bytes: at most %d are taken", e.Size, e.Max)
}

// Reserved returns the number of bytes that are reserved for an incomplete chunk. They are free
// when the receiver is given up.
func (r *Receiver) Reserved() int {
	if r.partial == nil {
		return 0
	}
	return int(r.partial.ChunkSize)
}

// Received returns the number of different frames that have been received.
func (r *Receiver) Received() uint64 { return r.next + uint64(r.buffered) }

// Take records that the chunk with this End, and all chunks before it, have been taken over.
func (r *Receiver) Take(end uint64) { r.taken = max(r.taken, min(end, r.next)) }

// Ack returns the acknowledgement to send.
func (r *Receiver) Ack() frame.StreamAck {
	a := frame.StreamAck{Stream: r.Stream, Next: r.next, Taken: r.taken, Limit: r.next + uint64(r.Window)}
	left := r.buffered
	if r.buffer[r.next%uint64(r.Window)] != nil {
		left-- // the frame at next waits for memory
	}
	for n, end := r.next+1, r.next; left > 0 && len(a.Ranges) < frame.MaxRanges; n++ {
		if r.buffer[n%uint64(r.Window)] == nil {
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

package fake

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Answer returns a network's answer to a frame, or nil.
type Answer func(frame []byte, h *packet.Headers) []byte

// Wire is an interface's link to a network. Frames take Delay each way.
type Wire struct {
	Delay time.Duration

	mu      sync.Mutex
	answer  Answer
	gateway netip.Addr
	at      openflow.MAC
	cut     bool
	edge    bool
	refuse  error
	lose    int
	sent    [][]byte
	sockets map[*Socket]bool
}

// NewWire returns a wire to a network with the given answers.
func NewWire(answer Answer) *Wire {
	return &Wire{answer: answer, sockets: map[*Socket]bool{}, Delay: time.Millisecond}
}

// SetAnswer connects the wire to another network.
func (w *Wire) SetAnswer(answer Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// SetGateway sets the gateway that answers ARP.
func (w *Wire) SetGateway(ip netip.Addr, mac openflow.MAC) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gateway, w.at = ip, mac
}

// Edge sets whether only the edge of the network answers. If only is set, ARP requests for the gateway
// are answered, but its echo replies are lost, as if the path beyond the edge were cut.
func (w *Wire) Edge(only bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.edge = only
}

// Refuse makes sockets return an error for frames to send; nil ends that.
func (w *Wire) Refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = err
}

// Cut sets whether all frames are lost.
func (w *Wire) Cut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

// Lose makes the next n frames from the device get lost.
func (w *Wire) Lose(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = n
}

// Sent returns the frames that the device has sent.
func (w *Wire) Sent() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([][]byte(nil), w.sent...)
}

// Open opens a socket on the wire.
func (w *Wire) Open() *Socket {
	s := &Socket{wire: w, in: make(chan []byte, 64)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sockets[s] = true
	return s
}

// Deliver delivers a frame to the device.
func (w *Wire) Deliver(frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut || frame == nil {
		return
	}
	for s := range w.sockets {
		select {
		case s.in <- frame:
		default: // a full socket loses frames, as in a kernel
		}
	}
}

// send sends a frame of the device.
func (w *Wire) send(frame []byte) error {
	w.mu.Lock()
	if err := w.refuse; err != nil {
		w.mu.Unlock()
		return err
	}
	w.sent = append(w.sent, frame)
	lost := w.cut || w.lose > 0
	if w.lose > 0 {
		w.lose--
	}
	w.mu.Unlock()
	if lost {
		return nil
	}
	time.AfterFunc(w.Delay, func() {
		if reply := w.reply(frame); reply != nil {
			time.AfterFunc(w.Delay, func() { w.Deliver(reply) })
		}
	})
	return nil
}

// reply returns the answer to a frame, or nil.
func (w *Wire) reply(frame []byte) []byte {
	h, err := packet.Parse(frame)
	if err != nil {
		return nil
	}
	w.mu.Lock()
	answer, gateway, at, edge := w.answer, w.gateway, w.at, w.edge
	w.mu.Unlock()
	switch {
	case h.Has(packet.ARP):
		if h.ARPOp == packet.ARPRequest && h.Dst == gateway {
			return packet.AppendARPReply(nil, &h, at)
		}
	case h.Has(packet.ICMPv4) && h.Dst == gateway && h.EthDst == at:
		if !edge {
			return pong(frame, &h)
		}
	case answer != nil:
		return answer(frame, &h)
	}
	return nil
}

// pong returns the answer to an ICMP echo request.
func pong(frame []byte, h *packet.Headers) []byte {
	b := slices.Clone(frame)
	copy(b, frame[6:12])
	copy(b[6:], frame[:6])
	copy(b[h.L3+12:], frame[h.L3+16:h.L3+20])
	copy(b[h.L3+16:], frame[h.L3+12:h.L3+16])
	b[h.L4] = 0 // nobody verifies the checksum, which is wrong now
	return b
}

// Socket is a socket on a wire.
type Socket struct {
	wire *Wire
	in   chan []byte
}

// Send sends a frame.
func (s *Socket) Send(frame []byte) error {
	return s.wire.send(append([]byte(nil), frame...))
}

// Receive waits for a frame.
func (s *Socket) Receive(ctx context.Context) (packetsocket.Frame, error) {
	select {
	case f := <-s.in:
		return packetsocket.Frame{Data: f}, nil
	case <-ctx.Done():
		return packetsocket.Frame{}, ctx.Err()
	}
}

// Close closes the socket.
func (s *Socket) Close() error {
	s.wire.mu.Lock()
	defer s.wire.mu.Unlock()
	delete(s.wire.sockets, s)
	return nil
}

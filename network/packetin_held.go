package network

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluice-net/sluice/openflow"
)

// Held is a packet that a handler keeps while it waits for something. The first call of Release,
// Output, Forward or Drop ends the holding. A packet that is held until its deadline is forwarded
// as if the service did not exist.
type Held struct {
	packet   PacketIn
	deadline time.Time
	ended    atomic.Bool
}

// heldPackets holds the packets held on one switch.
type heldPackets struct {
	mu      sync.Mutex
	limit   int
	packets map[*Held]struct{}
}

func (h *heldPackets) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.packets)
}

// dropAll drops all packets when the session ends.
func (h *heldPackets) dropAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.packets {
		if p.ended.CompareAndSwap(false, true) {
			p.packet.Switch.ch.account.release(p.size())
		}
	}
	clear(h.packets)
}

// expired returns the packets whose time is over.
func (h *heldPackets) expired(now time.Time) []*Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*Held
	for p := range h.packets {
		if now.After(p.deadline) {
			out = append(out, p)
		}
	}
	return out
}

// Hold copies the packet and keeps it for at most d. The handler then returns Stop. The number of
// packets held on one switch is bounded, and so is the memory of all switches together: beyond a
// bound Hold returns ErrBusy, and the handler returns Continue.
func (p *PacketIn) Hold(d time.Duration) (*Held, error) {
	s := p.Switch
	h := &Held{packet: *p, deadline: time.Now().Add(d)}
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	switch {
	case s.ch.ended():
		return nil, s.ch.errDown()
	case len(s.held.packets) >= s.held.limit:
		return nil, fmt.Errorf("switch %v: %d packets are held already: %w", s.dpid, s.held.limit, ErrBusy)
	}
	h.packet.Data = bytes.Clone(p.Data)
	if !s.ch.account.tryTake(h.size()) {
		return nil, fmt.Errorf("switch %v: holding a packet: %w", s.dpid, s.ch.account.quota.errFull())
	}
	if s.held.packets == nil {
		s.held.packets = map[*Held]struct{}{}
	}
	s.held.packets[h] = struct{}{}
	return h, nil
}

// size returns the memory that the packet takes, in bytes.
func (h *Held) size() int64 { return int64(unsafe.Sizeof(*h)) + int64(cap(h.packet.Data)) }

// Packet returns the held packet.
func (h *Held) Packet() *PacketIn { return &h.packet }

// end ends the holding and reports whether this call was the first to do so.
func (h *Held) end() bool {
	if !h.ended.CompareAndSwap(false, true) {
		return false
	}
	s := h.packet.Switch
	s.held.mu.Lock()
	delete(s.held.packets, h)
	s.held.mu.Unlock()
	s.ch.account.release(h.size())
	return true
}

// Release sends the packet through the switch's flow tables as if it had just arrived at its port,
// so that rules installed meanwhile apply to it.
func (h *Held) Release() error {
	return h.Output([]openflow.Action{openflow.Output(openflow.PortTable)})
}

// Output applies the actions to the packet, as [PacketIn.Output] does.
func (h *Held) Output(actions []openflow.Action) error {
	if !h.end() {
		return nil
	}
	return h.packet.Output(actions)
}

// Forward passes the packet to default forwarding.
func (h *Held) Forward() error {
	if !h.end() {
		return nil
	}
	return h.packet.Switch.n.forwarding.forwardHeld(&h.packet)
}

// Drop discards the packet.
func (h *Held) Drop() { h.end() }

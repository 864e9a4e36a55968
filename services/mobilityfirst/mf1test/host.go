// Package mf1test implements a host of the original release of MobilityFirst for tests, written
// only from the published formats of its frames. It probes, associates, and exchanges chunks with
// an access router.
package mf1test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
)

const (
	// again is how long the host waits for an acknowledgement before it announces a chunk again.
	again = 100 * time.Millisecond
	// headers is the size of a DATA frame without its part of the chunk.
	headers = 16
	// burst is the number of frames that the host sends before it asks which of them have arrived.
	burst = 64
)

// Chunk is a received chunk.
type Chunk struct {
	Routing   frame.RoutingHeader
	Transport frame.TransportHeader
	Payload   []byte
}

// Host is a host of the original release. Its methods may be called concurrently.
type Host struct {
	// GUID is the host's GUID.
	GUID frame.GUID

	link    *host.Interface
	came    chan Chunk
	acked   chan uint32 // the sequence numbers of answered probes
	sending sync.Mutex

	mu      sync.Mutex
	router  openflow.MAC // the router that has answered a probe; broadcast before
	id      uint32       // the router's number
	probes  uint32
	hop     uint32
	number  uint32
	cacks   map[uint32]chan frame.CACK
	coming  map[uint32]*coming
	ignored bool
}

// coming is a chunk that was announced to the host.
type coming struct {
	parts [][]byte
	got   frame.Bitmap
	left  uint32
}

// Run runs a host on an interface until the test ends or stop is called. Its first hop ID is
// firstHop+1.
func Run(t testing.TB, link *host.Interface, guid frame.GUID, firstHop uint32) (h *Host, stop func()) {
	h = &Host{
		GUID: guid, link: link, came: make(chan Chunk, 1<<16), acked: make(chan uint32, 1<<10), router: openflow.Broadcast, hop: firstHop,
		cacks: map[uint32]chan frame.CACK{}, coming: map[uint32]*coming{},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() { h.receive(ctx) })
	stop = sync.OnceFunc(func() { cancel(); all.Wait(); _ = link.Close() })
	t.Cleanup(stop)
	return h, stop
}

// Probe sends probes until a router answers.
func (h *Host) Probe(ctx context.Context) error {
	for {
		h.mu.Lock()
		h.probes++
		p := frame.Probe{Source: h.GUID.Short(), Sequence: h.probes}
		h.mu.Unlock()
		if err := h.tell(openflow.Broadcast, &p); err != nil {
			return err
		}
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("probe %d: %w", p.Sequence, ctx.Err())
		case sequence := <-h.acked:
			if timer.Stop(); sequence != 0 {
				return nil
			}
		case <-timer.C:
		}
	}
}

// Associate associates with the router that has answered its probe.
func (h *Host) Associate() error {
	h.mu.Lock()
	to, id := h.router, h.id
	h.mu.Unlock()
	return h.tell(to, &frame.Associate{Client: h.GUID.Short(), Host: id, Weight: 1})
}

// Deassociate ends the association.
func (h *Host) Deassociate() error {
	h.mu.Lock()
	to, id := h.router, h.id
	h.mu.Unlock()
	return h.tell(to, &frame.Deassociate{Entity: h.GUID.Short(), Host: id})
}

// Ignore sets whether the host ignores announced chunks and probes.
func (h *Host) Ignore(ignore bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ignored = ignore
}

// Receive waits for a chunk.
func (h *Host) Receive(ctx context.Context) (Chunk, error) {
	select {
	case c := <-h.came:
		return c, nil
	case <-ctx.Done():
		return Chunk{}, ctx.Err()
	}
}

// Send sends a chunk to the router, and returns when the router has all of it.
func (h *Host) Send(ctx context.Context, to frame.GUID, service frame.Service, payload []byte) error {
	h.mu.Lock()
	h.number++
	r := frame.RoutingHeader{Version: 1, Service: service, ChunkSize: uint32(len(payload) + 24), Source: frame.Address{GUID: h.GUID}, Destination: frame.Address{GUID: to}}
	t := frame.TransportHeader{Sequence: h.number, Size: uint32(len(payload)), Reliability: frame.ReliabilityAny}
	h.mu.Unlock()
	wire, err := r.AppendTo(nil)
	if err != nil {
		return err
	}
	return h.SendWire(ctx, append(t.AppendTo(wire), payload...))
}

// SendWire sends a chunk whose DATA frames contain wire.
func (h *Host) SendWire(ctx context.Context, wire []byte) error {
	size := h.link.MTU - headers
	packets := uint32((len(wire) + size - 1) / size)
	h.mu.Lock()
	h.hop++
	hop, cacks := h.hop, make(chan frame.CACK, 16)
	h.cacks[hop] = cacks
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.cacks, hop)
	}()
	var frames []frame.Frame
	for {
		h.mu.Lock()
		to := h.router
		h.mu.Unlock()
		if err := h.tell(to, append(frames, &frame.CSYN{Hop: hop, Packets: packets})...); err != nil {
			return err
		}
		frames = nil
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case c := <-cacks:
			timer.Stop()
			whole := true
			for n := range packets {
				if c.Received.Has(n) {
					continue
				}
				if whole = false; len(frames) < burst {
					frames = append(frames, &frame.Data{Sequence: n, Hop: hop, Payload: wire[int(n)*size : min(int(n+1)*size, len(wire))]})
				}
			}
			if whole {
				return nil
			}
		case <-timer.C:
		}
	}
}

// Tell sends arbitrary frames to an Ethernet address.
func (h *Host) Tell(to openflow.MAC, frames ...frame.Frame) error { return h.tell(to, frames...) }

func (h *Host) tell(to openflow.MAC, frames ...frame.Frame) error {
	h.sending.Lock()
	defer h.sending.Unlock()
	all := make([][]byte, len(frames))
	for i, f := range frames {
		all[i] = f.AppendTo(h.link.AppendHeader(nil, to, 0))
	}
	return h.link.Send(all)
}

func (h *Host) receive(ctx context.Context) {
	for {
		frames, err := h.link.Receive(ctx)
		if err != nil {
			return
		}
		for _, f := range frames {
			if p, err := frame.Parse(f.Payload); err == nil && f.Label == 0 {
				h.hear(f.From, p)
			}
		}
	}
}

func (h *Host) hear(from openflow.MAC, f frame.Frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch f := f.(type) {
	case *frame.Probe:
		switch {
		case f.Destination != h.GUID.Short():
		case f.Ack:
			h.router, h.id = from, f.Source
			select {
			case h.acked <- f.Sequence:
			default:
			}
		case !h.ignored:
			_ = h.tell(from, &frame.Probe{Source: h.GUID.Short(), Destination: f.Source, Sequence: f.Sequence, Ack: true})
		}
	case *frame.CACK:
		if c := h.cacks[f.Hop]; c != nil {
			copied := *f
			copied.Received = bytes.Clone(f.Received)
			select {
			case c <- copied:
			default:
			}
		}
	case *frame.CSYN:
		if h.ignored {
			return
		}
		c := h.coming[f.Hop]
		if c == nil {
			c = &coming{parts: make([][]byte, f.Packets), got: frame.NewBitmap(f.Packets), left: f.Packets}
			h.coming[f.Hop] = c
		}
		_ = h.tell(from, &frame.CACK{Hop: f.Hop, Packets: f.Packets, Received: c.got})
	case *frame.Data:
		h.data(f)
	}
}

// data handles a part of a chunk. h.mu is held.
func (h *Host) data(d *frame.Data) {
	c := h.coming[d.Hop]
	if c == nil || c.left == 0 || c.got.Has(d.Sequence) {
		return
	}
	c.got.Set(d.Sequence)
	c.parts[d.Sequence] = bytes.Clone(d.Payload)
	if c.left--; c.left > 0 {
		return
	}
	chunk, err := parse(bytes.Join(c.parts, nil))
	if err == nil {
		h.came <- chunk
	}
	c.parts = nil
}

// ErrSize means that the sizes in a chunk's headers are wrong.
var ErrSize = errors.New("its size is not that of what has come")

func parse(wire []byte) (c Chunk, err error) {
	var behind []byte
	if c.Routing, behind, err = frame.ParseRouting(wire); err != nil {
		return c, err
	}
	if c.Transport, c.Payload, err = frame.ParseTransport(behind); err != nil {
		return c, err
	}
	if int(c.Routing.ChunkSize) != len(behind) || int(c.Transport.Size) != len(c.Payload) {
		return c, ErrSize
	}
	return c, nil
}

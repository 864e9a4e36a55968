package egress

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/cinema/media"
	"github.com/sluice-net/sluice/internal/tasks"
)

// maxInbox is how many datagrams wait for a viewer at most: some seconds of a channel. What is
// beyond that it has lost.
const maxInbox = 512

// readAgain is how soon after an error datagrams are read again.
const readAgain = 10 * time.Millisecond

// hub is the one port of a gateway at which all its viewers' channels come in, each once. It
// copies them to its viewers, and keeps each from the last key frame on for who joins.
type hub struct {
	number  uint16
	socket  *net.UDPConn
	metrics *metrics

	mu       sync.Mutex
	inlets   map[uint16]map[*hubInlet]bool // by the port that they follow
	channels map[netip.AddrPort]*hubChannel
	kept     map[uint16]bool // the ports of channels
}

// hubChannel is a channel that viewers have been granted, or the first that comes from a port that
// one follows who is about to be: a burst may be here before the controller has said from where it
// comes. The hub's lock guards its times.
type hubChannel struct {
	group        *media.Cache
	heard, asked time.Time
}

func newHub(port uint16, socket *net.UDPConn, m *metrics) *hub {
	return &hub{number: port, socket: socket, metrics: m, inlets: map[uint16]map[*hubInlet]bool{}, channels: map[netip.AddrPort]*hubChannel{}, kept: map[uint16]bool{}}
}

// close has nothing come in any more. A gateway without a hub has nothing to close.
func (h *hub) close() {
	if h != nil {
		_ = h.socket.Close()
	}
}

func (h *hub) inlet() *hubInlet { return &hubInlet{hub: h, inbox: make(chan datagram, maxInbox)} }

// run copies until ctx ends.
func (h *hub) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, h.close)
	defer stop()
	b := make([]byte, media.MaxDatagram+1)
	for {
		n, from, err := h.socket.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of one datagram
			if tasks.Sleep(ctx, readAgain) != nil {
				return
			}
			continue
		}
		h.metrics.in.Add(uint64(n))
		h.copy(datagram{netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), bytes.Clone(b[:n])}, time.Now())
	}
}

// copy gives a datagram to those who follow its port, and keeps it if it is of a channel.
func (h *hub) copy(d datagram, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channels[d.from]
	if port := d.from.Port(); c == nil && len(h.inlets[port]) > 0 && !h.kept[port] {
		c = h.keep(d.from)
	}
	if c != nil {
		if p, err := media.Parse(d.raw); err == nil {
			c.group.Add(p, d.raw, now)
			c.heard = now
		}
	}
	nobody := true
	for _, port := range []uint16{d.from.Port(), 0} {
		for i := range h.inlets[port] {
			nobody = false
			select {
			case i.inbox <- d:
			default: // it is too slow
			}
		}
	}
	if nobody {
		h.metrics.strange.Inc()
	}
}

// keep has a channel kept. The lock is held.
func (h *hub) keep(from netip.AddrPort) *hubChannel {
	c := &hubChannel{group: media.NewCache(group)}
	h.channels[from], h.kept[from.Port()] = c, true
	return c
}

// hubInlet is a viewer's part of a hub.
type hubInlet struct {
	hub   *hub
	inbox chan datagram
	// The hub's lock guards what follows.
	ports  []uint16
	closed bool
}

func (i *hubInlet) port() uint16 { return i.hub.number }
func (i *hubInlet) free()        {}

func (i *hubInlet) close() {
	i.hub.mu.Lock()
	defer i.hub.mu.Unlock()
	i.change(nil)
	i.closed = true
}

func (i *hubInlet) follow(ports []uint16) {
	i.hub.mu.Lock()
	defer i.hub.mu.Unlock()
	if !i.closed {
		i.change(ports)
	}
}

// change has the inlet follow other ports. The lock is held.
func (i *hubInlet) change(ports []uint16) {
	h := i.hub
	for _, p := range i.ports {
		delete(h.inlets[p], i)
	}
	for _, p := range ports {
		if h.inlets[p] == nil {
			h.inlets[p] = map[*hubInlet]bool{}
		}
		h.inlets[p][i] = true
	}
	for _, p := range i.ports {
		if len(h.inlets[p]) == 0 {
			h.forget(p)
		}
	}
	i.ports = slices.Clone(ports)
}

// forget ends what is kept of channels from a port that nobody follows. The lock is held.
func (h *hub) forget(port uint16) {
	delete(h.inlets, port)
	delete(h.kept, port)
	for from := range h.channels {
		if from.Port() == port {
			delete(h.channels, from)
		}
	}
}

func (i *hubInlet) has(port uint16, now time.Time) bool {
	i.hub.mu.Lock()
	defer i.hub.mu.Unlock()
	for from, c := range i.hub.channels {
		if from.Port() == port && now.Sub(c.heard) < quiet && c.group.Size() > 0 {
			return true
		}
	}
	return false
}

// group has the channel kept from now on. What has fallen silent is not shown again.
func (i *hubInlet) group(from netip.AddrPort, now time.Time) [][]byte {
	i.hub.mu.Lock()
	defer i.hub.mu.Unlock()
	c := i.hub.channels[from]
	if c == nil && slices.Contains(i.ports, from.Port()) {
		c = i.hub.keep(from)
	}
	if c == nil || now.Sub(c.heard) >= quiet {
		return nil
	}
	return c.group.Group()
}

func (i *hubInlet) mayAsk(from netip.AddrPort, now time.Time) bool {
	i.hub.mu.Lock()
	defer i.hub.mu.Unlock()
	c := i.hub.channels[from]
	if c == nil || now.Sub(c.asked) < askEvery {
		return false
	}
	c.asked = now
	return true
}

func (i *hubInlet) run(ctx context.Context, v *viewer) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if at := v.due(); !at.IsZero() {
			timer.Reset(time.Until(at))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case d := <-i.inbox:
			v.take(d.from, d.raw, time.Now())
		case now := <-due:
			v.tick(now)
		}
	}
}

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

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// maxInbox bounds the datagrams that wait for a viewer: some seconds of a channel. Further
// datagrams are lost for this viewer.
const maxInbox = 512

// sourceTimeout is how long no packets of a channel may arrive before the gateway asks the controller
// for the channel's source again: the channel may have moved to another ingress gateway.
const sourceTimeout = time.Second

// readRetry is the pause before the next read after an error.
const readRetry = 10 * time.Millisecond

// hub receives the channels of all viewers at one port, each channel once. It distributes them to the
// viewers. For new viewers, it keeps the packets that have arrived since each channel's last key
// frame.
type hub struct {
	portNumber uint16
	socket     *net.UDPConn
	metrics    *metrics

	mu          sync.Mutex
	followers   map[uint16]map[*hubSource]bool // by the source port that they follow
	channels    map[netip.AddrPort]*hubChannel
	cachedPorts map[uint16]bool // source ports of channels
}

// hubChannel is a cached channel: one that viewers have been granted, or the first one from a source
// port that a new viewer follows. The latter is cached because its burst may arrive before the
// controller's answer names its source. The times are guarded by hub.mu.
type hubChannel struct {
	group                  *media.Cache
	receivedAt, repairedAt time.Time
}

func newHub(port uint16, socket *net.UDPConn, m *metrics) *hub {
	return &hub{portNumber: port, socket: socket, metrics: m, followers: map[uint16]map[*hubSource]bool{}, channels: map[netip.AddrPort]*hubChannel{}, cachedPorts: map[uint16]bool{}}
}

// close closes the port. It may be called on a nil hub.
func (h *hub) close() {
	if h != nil {
		_ = h.socket.Close()
	}
}

func (h *hub) newSource() *hubSource { return &hubSource{hub: h, inbox: make(chan datagram, maxInbox)} }

// run distributes datagrams until ctx ends.
func (h *hub) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, h.close)
	defer stop()
	b := make([]byte, media.MaxDatagram+1)
	for {
		n, from, err := h.socket.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an error of one datagram
			if tasks.Sleep(ctx, readRetry) != nil {
				return
			}
			continue
		}
		h.metrics.in.Add(uint64(n))
		h.distribute(datagram{netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), bytes.Clone(b[:n])}, time.Now())
	}
}

// distribute passes a datagram to the sources that follow its port, and caches it if it belongs
// to a channel.
func (h *hub) distribute(d datagram, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channels[d.from]
	if port := d.from.Port(); c == nil && len(h.followers[port]) > 0 && !h.cachedPorts[port] {
		c = h.cacheChannel(d.from)
	}
	if c != nil {
		if p, err := media.Parse(d.raw); err == nil {
			c.group.Add(p, d.raw, now)
			c.receivedAt = now
		}
	}
	nobody := true
	for _, port := range []uint16{d.from.Port(), 0} {
		for s := range h.followers[port] {
			nobody = false
			select {
			case s.inbox <- d:
			default: // the viewer is too slow, and loses the datagram
			}
		}
	}
	if nobody {
		h.metrics.unexpected.Inc()
	}
}

// cacheChannel starts to cache a channel. h.mu is held.
func (h *hub) cacheChannel(from netip.AddrPort) *hubChannel {
	c := &hubChannel{group: media.NewCache(groupLimits)}
	h.channels[from], h.cachedPorts[from.Port()] = c, true
	return c
}

// hubSource is a viewer's source of datagrams from a hub.
type hubSource struct {
	hub   *hub
	inbox chan datagram
	// The fields below are guarded by hub.mu.
	ports  []uint16
	closed bool
}

func (s *hubSource) port() uint16 { return s.hub.portNumber }
func (s *hubSource) releasePort() {}

func (s *hubSource) close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.replacePorts(nil)
	s.closed = true
}

func (s *hubSource) setPorts(ports []uint16) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if !s.closed {
		s.replacePorts(ports)
	}
}

// replacePorts makes the source follow other ports. hub.mu is held.
func (s *hubSource) replacePorts(ports []uint16) {
	h := s.hub
	for _, p := range s.ports {
		delete(h.followers[p], s)
	}
	for _, p := range ports {
		if h.followers[p] == nil {
			h.followers[p] = map[*hubSource]bool{}
		}
		h.followers[p][s] = true
	}
	for _, p := range s.ports {
		if len(h.followers[p]) == 0 {
			h.dropPort(p)
		}
	}
	s.ports = slices.Clone(ports)
}

// dropPort drops the cached channels of a port that nobody follows any more. h.mu is held.
func (h *hub) dropPort(port uint16) {
	delete(h.followers, port)
	delete(h.cachedPorts, port)
	for from := range h.channels {
		if from.Port() == port {
			delete(h.channels, from)
		}
	}
}

func (s *hubSource) hasChannel(port uint16, now time.Time) bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for from, c := range s.hub.channels {
		if from.Port() == port && now.Sub(c.receivedAt) < sourceTimeout && c.group.Size() > 0 {
			return true
		}
	}
	return false
}

// group implements source. It also starts to cache the channel. It returns nothing if no packets of
// the channel have arrived for sourceTimeout.
func (s *hubSource) group(from netip.AddrPort, now time.Time) [][]byte {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	c := s.hub.channels[from]
	if c == nil && slices.Contains(s.ports, from.Port()) {
		c = s.hub.cacheChannel(from)
	}
	if c == nil || now.Sub(c.receivedAt) >= sourceTimeout {
		return nil
	}
	return c.group.Group()
}

func (s *hubSource) allowRepair(from netip.AddrPort, now time.Time) bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	c := s.hub.channels[from]
	if c == nil || now.Sub(c.repairedAt) < repairInterval {
		return false
	}
	c.repairedAt = now
	return true
}

func (s *hubSource) run(ctx context.Context, v *viewer) {
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
		case d := <-s.inbox:
			v.receive(d.from, d.raw, time.Now())
		case now := <-due:
			v.tick(now)
		}
	}
}

// source receives a viewer's channels.
type source interface {
	// port returns the port to which switches copy the channels.
	port() uint16
	// run passes datagrams to the viewer until ctx ends or the source is closed.
	run(ctx context.Context, v *viewer)
	// setPorts accepts datagrams from the given source ports only; 0 matches any port.
	setPorts(ports []uint16)
	// hasChannel reports whether datagrams of the channel with a source port are cached, so that
	// no burst is needed.
	hasChannel(port uint16, now time.Time) bool
	// group returns the cached datagrams of a channel since its last key frame.
	group(from netip.AddrPort, now time.Time) [][]byte
	// allowRepair reports whether missing packets of a channel may be requested, on behalf of
	// all viewers of the source.
	allowRepair(from netip.AddrPort, now time.Time) bool
	// close stops the source. releasePort frees its port, once nobody copies to it any more.
	close()
	releasePort()
}

// newSource returns a source for another viewer.
func (g *Gateway) newSource() (source, error) {
	if g.hub != nil {
		return g.hub.newSource(), nil
	}
	port, socket, err := g.listen()
	if err != nil {
		return nil, err
	}
	return &portSource{g, port, socket}, nil
}

// portSource is a port for one viewer, to which switches copy the viewer's channels.
type portSource struct {
	g          *Gateway
	portNumber uint16
	socket     *net.UDPConn
}

func (p *portSource) port() uint16                               { return p.portNumber }
func (p *portSource) setPorts([]uint16)                          {}
func (p *portSource) hasChannel(uint16, time.Time) bool          { return false }
func (p *portSource) group(netip.AddrPort, time.Time) [][]byte   { return nil }
func (p *portSource) allowRepair(netip.AddrPort, time.Time) bool { return true }
func (p *portSource) close()                                     { _ = p.socket.Close() }
func (p *portSource) releasePort()                               { p.g.release(p.portNumber) }

// run reads datagrams until the socket is closed. The viewer drops those from unexpected
// sources.
func (p *portSource) run(_ context.Context, v *viewer) {
	b := make([]byte, media.MaxDatagram+1)
	for {
		_ = p.socket.SetReadDeadline(v.due()) // fails only if the socket is closed
		n, from, err := p.socket.ReadFromUDPAddrPort(b)
		now := time.Now()
		switch e, isNet := err.(net.Error); {
		case err == nil:
			v.g.metrics.in.Add(uint64(n))
			v.receive(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), b[:n], now)
		case isNet && e.Timeout():
			v.tick(now)
		default:
			return
		}
	}
}

type datagram struct {
	from netip.AddrPort
	raw  []byte
}

// groupLimits bounds the packets of a channel that are cached. The longest group of pictures fits.
var groupLimits = media.Limits{Bytes: 4 << 20, Packets: 4096, Age: 10 * time.Second}

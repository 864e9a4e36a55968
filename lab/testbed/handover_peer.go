package testbed

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Node is a host of the lab: programs and sockets of this process can be in it.
type Node interface {
	Inside
	Place
}

// PeerOptions says how a device with two access links talks to a server by
// something other than the handover service.
type PeerOptions struct {
	Device, Server Node
	First, Second  netip.Addr     // the device's address on each link
	Listen         netip.AddrPort // the server's
	Rate           int            // messages a second from server to device
	// Watch is the silence after which an application takes its link for dead,
	// where nothing below it does.
	Watch time.Duration
	// Talks has the device send a message of its own every 20 ms.
	Talks bool
	// Backup has MPTCP use the second link only when the first fails.
	Backup bool
}

// Peer is a running conversation over the first link.
type Peer interface {
	// Move tells the device that its first link is about to go.
	Move(ctx context.Context) error
	// LastArrival is when a message arrived last.
	LastArrival() time.Time
	// Count is how many messages were sent, and how many have arrived.
	Count() (sent, received int)
	// Stop ends the messages, waits for what is still on the way, ends the
	// conversation and returns its record.
	Stop() *StreamLog
}

// talkInterval is how often a device that talks does.
const talkInterval = 20 * time.Millisecond

// peer is what all peers have in common.
type peer struct {
	pulse *pulse
	PeerOptions
	ctx     context.Context
	cancel  context.CancelFunc
	silence context.CancelFunc // ends the messages
	running sync.WaitGroup
	moving  sync.Once
	moved   error

	mu      sync.Mutex
	closers []func() // last first
}

func newPeer(ctx context.Context, o PeerOptions) *peer {
	p := &peer{pulse: newPulse(o.Rate), PeerOptions: o, silence: func() {}}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// spawn runs f until Stop has waited for it.
func (p *peer) spawn(f func()) {
	p.running.Add(1)
	go func() { defer p.running.Done(); f() }()
}

// closeAtStop has something closed at the end, in the reverse order.
func (p *peer) closeAtStop(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closers = append(p.closers, f)
}

// LastArrival implements Peer.
func (p *peer) LastArrival() time.Time { return p.pulse.lastArrival() }

// Count implements Peer.
func (p *peer) Count() (sent, received int) { return p.pulse.count() }

// begin starts the messages, once the conversation is set up.
func (p *peer) begin() {
	ctx, cancel := context.WithCancel(p.ctx)
	p.silence = cancel
	p.spawn(func() { p.pulse.beat(ctx) })
}

// Stop implements Peer.
func (p *peer) Stop() *StreamLog {
	p.silence()
	waitAll(p.pulse.deliveries)
	l := p.pulse.finish()
	p.cancel()
	p.mu.Lock()
	closers := p.closers
	p.closers = nil
	p.mu.Unlock()
	for i := len(closers) - 1; i >= 0; i-- {
		closers[i]()
	}
	p.running.Wait()
	return l
}

// abandon ends a conversation that could not be set up.
func (p *peer) abandon(err error) error {
	p.Stop()
	return err
}

// moveOnce moves the first time; whoever comes later gets the same answer.
func (p *peer) moveOnce(f func() error) error {
	p.moving.Do(func() { p.moved = f() })
	return p.moved
}

// dialTimeout bounds every set-up of a conversation.
const dialTimeout = 10 * time.Second

func (p *peer) listenTCP(lc net.ListenConfig) (l net.Listener, err error) {
	err = p.Server.Do(func() (err error) {
		l, err = lc.Listen(p.ctx, "tcp", p.Listen.String())
		return err
	})
	if err == nil {
		p.closeAtStop(func() { l.Close() })
	}
	return l, err
}

// dialTCP connects to the server from one of the device's addresses.
func (p *peer) dialTCP(from netip.Addr, d net.Dialer) (c net.Conn, err error) {
	d.LocalAddr, d.Timeout = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), dialTimeout
	err = p.Device.Do(func() (err error) {
		c, err = d.DialContext(p.ctx, "tcp", p.Listen.String())
		return err
	})
	if err == nil {
		p.closeAtStop(func() { c.Close() })
	}
	return c, err
}

// errMove says that a move was asked for in vain.
var errMove = errors.New("the device could not move to its second link")

package testbed

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Node is a host of the lab in which this process can start programs and open sockets.
type Node interface {
	Inside
	Place
}

// PeerOptions describes a conversation with a server by a device with two access links that does
// not use the handover service.
type PeerOptions struct {
	Device, Server Node
	First, Second  netip.Addr     // the device's address on each link
	Listen         netip.AddrPort // the server's address
	Rate           int            // messages a second from server to device
	// Watch is the time without messages after which an application takes its link for dead, if no
	// layer below it does.
	Watch time.Duration
	// Talks makes the device send a message of its own every 20 ms.
	Talks bool
	// Backup makes MPTCP use the second link only if the first fails.
	Backup bool
}

// Peer is a conversation that runs over the first link.
type Peer interface {
	// Move tells the device that its first link will fail soon.
	Move(ctx context.Context) error
	// LastArrival returns the time of the last arrival.
	LastArrival() time.Time
	// Count returns the number of messages that were sent, and of those that have arrived.
	Count() (sent, received int)
	// Stop stops the messages, waits for those in flight, ends the conversation and returns its
	// record.
	Stop() *StreamLog
}

// talkInterval is the interval of the device's own messages.
const talkInterval = 20 * time.Millisecond

// peer holds what all peers have in common.
type peer struct {
	pulse *pulse
	PeerOptions
	ctx          context.Context
	cancel       context.CancelFunc
	stopMessages context.CancelFunc // stops the messages
	running      sync.WaitGroup
	moving       sync.Once
	moved        error

	mu      sync.Mutex
	closers []func() // called in the reverse order
}

func newPeer(ctx context.Context, o PeerOptions) *peer {
	p := &peer{pulse: newPulse(o.Rate), PeerOptions: o, stopMessages: func() {}}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// spawn runs f in a goroutine, for which Stop waits.
func (p *peer) spawn(f func()) {
	p.running.Add(1)
	go func() { defer p.running.Done(); f() }()
}

// closeAtStop makes Stop call f. Stop calls such functions in the reverse order.
func (p *peer) closeAtStop(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closers = append(p.closers, f)
}

// LastArrival implements Peer.
func (p *peer) LastArrival() time.Time { return p.pulse.lastArrival() }

// Count implements Peer.
func (p *peer) Count() (sent, received int) { return p.pulse.count() }

// begin starts the messages once the conversation is set up.
func (p *peer) begin() {
	ctx, cancel := context.WithCancel(p.ctx)
	p.stopMessages = cancel
	p.spawn(func() { p.pulse.tick(ctx) })
}

// Stop implements Peer.
func (p *peer) Stop() *StreamLog {
	p.stopMessages()
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

// moveOnce calls f the first time, and returns the same result to later callers.
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

// errMove means that the device could not move.
var errMove = errors.New("the device could not move to its second link")

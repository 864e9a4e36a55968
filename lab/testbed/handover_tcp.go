package testbed

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
)

// tcpPeer is an application on plain TCP that reconnects from its second address and requests the
// messages from the next one on.
type tcpPeer struct {
	*peer
	first net.Conn
}

// StartTCP starts a conversation over plain TCP.
func StartTCP(ctx context.Context, o PeerOptions) (Peer, error) {
	p := &tcpPeer{peer: newPeer(ctx, o)}
	if err := p.start(); err != nil {
		return nil, p.abandon(fmt.Errorf("TCP: %w", err))
	}
	return p, nil
}

func (p *tcpPeer) start() error {
	listener, err := p.listenTCP(net.ListenConfig{})
	if err != nil {
		return err
	}
	p.spawn(func() { p.serve(listener) })
	if p.first, err = p.dialTCP(p.First, net.Dialer{}); err != nil {
		return err
	}
	if err := p.resume(p.first); err != nil {
		return err
	}
	p.begin()
	p.spawn(func() {
		p.pulse.watch(p.ctx, p.Watch, func() { _ = p.Move(p.ctx) }) // A failure shows as silence.
	})
	return nil
}

// resume requests the messages from the next one on, and reads them.
func (p *tcpPeer) resume(c net.Conn) error {
	if _, err := c.Write(binary.BigEndian.AppendUint64(nil, uint64(p.pulse.expected()))); err != nil {
		return err
	}
	p.spawn(func() { _ = p.pulse.receiveFrom(c) }) // It ends with the connection.
	return nil
}

// serve sends to the client that has connected last.
func (p *tcpPeer) serve(listener net.Listener) {
	var sending sync.WaitGroup
	defer sending.Wait()
	stop := context.CancelFunc(func() {})
	defer func() { stop() }()
	for {
		c, err := listener.Accept()
		if err != nil {
			return // The listener was closed.
		}
		p.closeAtStop(func() { c.Close() })
		var number [8]byte
		if _, err := io.ReadFull(c, number[:]); err != nil {
			continue
		}
		stop()
		ctx, cancel := context.WithCancel(p.ctx)
		stop = cancel
		sending.Go(func() { _ = p.pulse.sendFrom(ctx, int(binary.BigEndian.Uint64(number[:])), c) })
	}
}

// Move implements Peer: it opens the new connection before it closes the old one.
func (p *tcpPeer) Move(context.Context) error {
	return p.moveOnce(func() error {
		c, err := p.dialTCP(p.Second, net.Dialer{})
		if err == nil {
			err = p.resume(c)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errMove, err)
		}
		return p.first.Close()
	})
}

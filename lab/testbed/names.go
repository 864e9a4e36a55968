package testbed

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// namesPeer is a conversation between two names.
type namesPeer struct {
	*peer
	service  frame.Service
	from, to *hostapi.Client
}

// StartNames starts a conversation between new names of two MobilityFirst hosts. server and device
// are the sockets of these hosts for applications. The hosts locate the device by themselves. service
// holds the service bits of the chunks, like frame.DelayTolerant; 0 means none.
func StartNames(ctx context.Context, o PeerOptions, server, device string, service frame.Service) (Peer, error) {
	p := &namesPeer{peer: newPeer(ctx, o), service: service}
	if err := p.start(server, device); err != nil {
		return nil, p.abandon(fmt.Errorf("names: %w", err))
	}
	return p, nil
}

func (p *namesPeer) start(server, device string) (err error) {
	if p.to, err = p.attach(device); err != nil {
		return err
	}
	if p.from, err = p.attach(server); err != nil {
		return err
	}
	if _, err := p.from.Ping(p.to.Name, dialTimeout); err != nil {
		return err
	}
	p.spawn(p.receive) // It ends with the connection to the host.
	p.spawn(p.send)
	p.begin()
	return nil
}

// attach attaches a new name.
func (p *namesPeer) attach(socket string) (*hostapi.Client, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("making a name: %w", err)
	}
	var c *hostapi.Client
	err = PollFor(p.ctx, dialTimeout, "the host of names at "+socket, func() (err error) { c, err = hostapi.Open(p.ctx, socket, key); return err })
	if err == nil {
		p.closeAtStop(func() { _ = c.Close() })
	}
	return c, err
}

// send sends each message that is due as a chunk.
func (p *namesPeer) send() {
	for number := 0; ; {
		for sent, _ := p.pulse.count(); number < sent; number++ {
			block := make([]byte, pulseSize)
			binary.BigEndian.PutUint64(block, uint64(number))
			if p.from.Send(p.ctx, p.to.Name, p.service, block, func(error) {}) != nil {
				return // Messages that are not sent show as lost.
			}
		}
		select {
		case <-p.ctx.Done():
			return
		case <-p.pulse.more:
		}
	}
}

// receive receives the chunks.
func (p *namesPeer) receive() {
	for {
		x, err := p.to.Receive(p.ctx)
		if err != nil {
			return
		}
		p.pulse.arrived(int(binary.BigEndian.Uint64(x.Payload)), time.Now().UnixNano())
		if p.to.Take(x) != nil {
			return
		}
	}
}

// Move implements Peer. It does nothing, because the network detects moves by itself.
func (p *namesPeer) Move(context.Context) error { return nil }

package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Flood is a stream of UDP packets at a rate that does not react to losses.
type Flood struct {
	From, To Node
	Dst      netip.AddrPort
	// Rate is in bit/s of payload, and Bytes the payload of one packet.
	Rate  float64
	Bytes int
}

// Flooding is a flood that runs.
type Flooding struct {
	out, in net.PacketConn
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu               sync.Mutex
	packets, payload uint64
}

// Start starts sending.
func (f Flood) Start(ctx context.Context) (*Flooding, error) {
	r := &Flooding{}
	var err error
	listen := func(n Node, at netip.AddrPort) net.PacketConn {
		c, openErr := packetAt(n, at)
		err = errors.Join(err, openErr)
		return c
	}
	r.in = listen(f.To, f.Dst)
	unspecified := netip.IPv4Unspecified()
	if f.Dst.Addr().Is6() {
		unspecified = netip.IPv6Unspecified()
	}
	r.out = listen(f.From, netip.AddrPortFrom(unspecified, 0))
	if err != nil {
		if r.in != nil {
			r.in.Close()
		}
		return nil, fmt.Errorf("flood: %w", err)
	}
	ctx, r.cancel = context.WithCancel(ctx)
	r.wg.Go(func() { r.send(ctx, f) })
	r.wg.Go(r.receive)
	return r, nil
}

// send keeps the rate on average: packets that a late tick has missed are sent with the next.
func (r *Flooding) send(ctx context.Context, f Flood) {
	packet := make([]byte, f.Bytes)
	to := net.UDPAddrFromAddrPort(f.Dst)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began, sent := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		due := time.Since(began).Seconds() * f.Rate / 8 / float64(f.Bytes)
		if due-sent > 200 { // The machine was busy otherwise; do not make up for all of it in one burst.
			sent = due - 200
		}
		for ; sent < due; sent++ {
			_, _ = r.out.WriteTo(packet, to) // A packet that cannot be sent counts as lost.
		}
	}
}

func (r *Flooding) receive() {
	packet := make([]byte, 65536)
	for {
		n, _, err := r.in.ReadFrom(packet)
		if err != nil {
			return // Stop has closed the socket.
		}
		r.mu.Lock()
		r.packets++
		r.payload += uint64(n)
		r.mu.Unlock()
	}
}

// Received returns the packets and bytes of payload that have arrived so far.
func (r *Flooding) Received() (packets, payload uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.packets, r.payload
}

// Stop stops sending.
func (r *Flooding) Stop() {
	r.cancel()
	r.in.Close()
	r.out.Close()
	r.wg.Wait()
}

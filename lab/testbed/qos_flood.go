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

// Flood is a stream of UDP packets, whatever the network makes of them.
type Flood struct {
	From, To Node
	Dst      netip.AddrPort
	// Rate is in bit/s of payload, Bytes that of one packet.
	Rate  float64
	Bytes int
}

// Flooding is a flood that goes on.
type Flooding struct {
	out, in net.PacketConn
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu               sync.Mutex
	packets, payload uint64
}

// Start begins to send.
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

// send keeps the rate over the whole time: what a late tick has missed goes out with
// the next.
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
		if due-sent > 200 { // the machine was busy elsewhere; do not make it up in one burst
			sent = due - 200
		}
		for ; sent < due; sent++ {
			_, _ = r.out.WriteTo(packet, to) // what is not sent is lost, as on the way
		}
	}
}

func (r *Flooding) receive() {
	packet := make([]byte, 65536)
	for {
		n, _, err := r.in.ReadFrom(packet)
		if err != nil {
			return // closed by Stop
		}
		r.mu.Lock()
		r.packets++
		r.payload += uint64(n)
		r.mu.Unlock()
	}
}

// Received is what has arrived so far.
func (r *Flooding) Received() (packets, payload uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.packets, r.payload
}

// Stop ends it.
func (r *Flooding) Stop() {
	r.cancel()
	r.in.Close()
	r.out.Close()
	r.wg.Wait()
}

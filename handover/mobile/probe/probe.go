package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/raw"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Conn is the interface that probes leave by. *raw.Socket with the filter
// raw.ARPReplies is one.
type Conn interface {
	Send(frame []byte) error
	Receive(ctx context.Context) (raw.Frame, error)
}

// Config says what is probed, and how.
type Config struct {
	// MAC is the interface's address.
	MAC     openflow.MAC
	Gateway netip.Addr
	// Interval is the time from one probe to the next, and how long an answer
	// may take. Window is over how many probes loss is counted.
	Interval time.Duration
	Window   int
}

// Sample is what is known after a probe.
type Sample struct {
	// Loss is the share of the latest Probes that was not answered.
	Loss   float64
	Probes int
	// RTT is how long the latest answer took; zero, if this probe has none.
	RTT time.Duration
	// Gateway is the address that answered last.
	Gateway openflow.MAC
}

// Run sends probes and reports after each, until ctx ends or the interface fails.
func Run(ctx context.Context, c Config, conn Conn, report func(Sample)) error {
	w := NewWindow(c.Window)
	request := packet.AppendARPRequest(nil, c.MAC, netip.IPv4Unspecified(), c.Gateway, 0)
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	var s Sample
	for {
		sent := time.Now()
		if err := conn.Send(request); err != nil {
			return fmt.Errorf("probe %v: %w", c.Gateway, err)
		}
		mac, err := answer(ctx, c, conn, sent.Add(c.Interval))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.RTT = 0
		switch {
		case err == nil:
			s.RTT, s.Gateway = time.Since(sent), mac
			w.Add(false)
		case errors.Is(err, context.DeadlineExceeded):
			w.Add(true)
		default:
			return fmt.Errorf("probe %v: %w", c.Gateway, err)
		}
		s.Loss, s.Probes = w.Loss(), w.Len()
		report(s)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answer waits for the gateway's answer.
func answer(ctx context.Context, c Config, conn Conn, until time.Time) (openflow.MAC, error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		f, err := conn.Receive(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return openflow.MAC{}, context.DeadlineExceeded
			}
			return openflow.MAC{}, err
		}
		h, err := packet.Parse(f.Data)
		if err == nil && h.Has(packet.ARP) && h.ARPOp == packet.ARPReply && h.Src == c.Gateway && h.ARPTHA == c.MAC {
			return h.ARPSHA, nil
		}
	}
}

package handover

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// edgeLatency sends up to pingTries ARP requests, pingInterval apart. maxPings bounds the
// exchanges at once.
const (
	pingTries    = 3
	pingInterval = 60 * time.Millisecond
	maxPings     = 4096
)

// pings holds the ARP requests to devices whose replies are awaited.
type pings struct {
	mu      sync.Mutex
	waiting map[ping]chan time.Time
}

// ping is the device and port of an ARP request.
type ping struct {
	at network.PortRef
	ip netip.Addr
}

// newPings returns pings without any request.
func newPings() *pings { return &pings{waiting: map[ping]chan time.Time{}} }

// answered passes a reply on to the caller that waits for it.
func (p *pings) answered(at network.PortRef, ip netip.Addr, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.waiting[ping{at, ip}]; c != nil {
		select {
		case c <- now:
		default:
		}
	}
}

// wait returns a channel for the reply to a request, or false if another caller waits for it or
// too many requests are in progress.
func (p *pings) wait(k ping) (<-chan time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting[k] != nil || len(p.waiting) >= maxPings {
		return nil, false
	}
	c := make(chan time.Time, 1)
	p.waiting[k] = c
	return c, true
}

// forget ends waiting for a reply.
func (p *pings) forget(k ping) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, k)
}

// edgeLatency measures T_e, the one-way latency between a device and its edge switch: half the
// time of an ARP exchange, without the latency between switch and controller. It returns false if
// the device does not answer.
func (s *guards) edgeLatency(ctx context.Context, at network.PortRef, ip netip.Addr, mac openflow.MAC) (time.Duration, bool) {
	k := ping{at, ip}
	answers, ok := s.pings.wait(k)
	if !ok {
		return 0, false
	}
	defer s.pings.forget(k)
	frame := packet.AppendARP(nil, packet.Frame{Dst: mac, Src: serverMAC},
		packet.ARPMessage{Op: packet.ARPRequest, SenderMAC: serverMAC, Sender: netip.IPv4Unspecified(), Target: ip})
	for range pingTries {
		sent := time.Now()
		if s.net.Send(at, frame) != nil {
			return 0, false
		}
		t := time.NewTimer(pingInterval)
		select {
		case heard := <-answers:
			t.Stop()
			return max(heard.Sub(sent)-2*s.net.ControlLatency(at.Switch), 0) / 2, true
		case <-ctx.Done():
			t.Stop()
			return 0, false
		case <-t.C:
		}
	}
	return 0, false
}

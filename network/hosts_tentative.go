package network

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
)

const (
	// maxHeldPerBinding is the number of packets that are held until a claim is accepted or
	// refused. A claim that waits for a switch holds one, because that may take long.
	maxHeldPerBinding = 8
	// settleMargin is how much later than expected a claim may be settled before its held packets
	// are forwarded without a decision.
	settleMargin = 10 * time.Second
)

// tentativePackets holds packets whose claim about a host is still pending, because hosts that
// received them would believe it.
type tentativePackets struct {
	cfg    *Config
	prober *hostProber
	// onChanges receives the changes of the host table.
	onChanges func([]hosts.Change)

	mu   sync.Mutex
	held map[*hosts.Claim][]*Held
	// barriers holds the barriers that follow the first probe of each claim.
	barriers map[*hosts.Claim]*batch
	wake     signal // a claim is pending
}

func newTentativePackets(c *Config, a *hostProber, onChanges func([]hosts.Change)) tentativePackets {
	return tentativePackets{
		cfg: c, prober: a, onChanges: onChanges,
		held: map[*hosts.Claim][]*Held{}, barriers: map[*hosts.Claim]*batch{}, wake: newSignal(),
	}
}

// hold keeps a packet until its claim is accepted or refused, which may have happened since the
// packet arrived. If there is no room, hold drops the packet; its sender has to expect that of any
// packet.
func (d *tentativePackets) hold(claim *hosts.Claim, p *PacketIn, timeout time.Duration) Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	limit := maxHeldPerBinding
	if claim.Waiting() {
		limit = 1
	}
	switch {
	case claim.Outcome() == hosts.Confirmed:
		return Continue
	case claim.Outcome() == hosts.Rejected, len(d.held[claim]) >= limit:
		return Stop
	}
	if h, err := p.Hold(timeout + settleMargin); err == nil {
		d.held[claim] = append(d.held[claim], h)
	}
	return Stop
}

// take removes and returns the packets held for a claim.
func (d *tentativePackets) take(claim *hosts.Claim) []*Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := d.held[claim]
	delete(d.held, claim)
	return held
}

// filter stops packets that make, by ARP or neighbour discovery, a claim that is pending or
// refused. It runs after the services, whose knowledge takes precedence.
func (d *tentativePackets) filter(p *PacketIn) Verdict {
	if len(p.claims) == 0 || !p.Headers.Has(packet.ARP) && !p.Headers.Has(packet.ND) {
		return Continue
	}
	for _, c := range p.claims {
		switch {
		case c.Kind == hosts.ClaimPending:
			if d.hold(c.Claim, p, d.cfg.HostConfirm+d.prober.hosts.MaxClaimWait()) == Stop {
				return Stop
			}
		case c.Kind == hosts.ClaimRefused && c.Reason != hosts.Full:
			return Stop
		}
	}
	return Continue
}

// handle handles a claim that has become pending, was accepted or was refused.
func (d *tentativePackets) handle(c hosts.Change) {
	switch c.Kind {
	case hosts.ClaimPending:
		if c.New {
			d.prober.probeKnownPort(c.Claim)
			d.awaitArrival(c.Claim)
		}
		d.wake.set()
	case hosts.ClaimAccepted:
		for _, h := range d.take(c.Claim) {
			if err := h.Forward(); err != nil {
				h.packet.Switch.logLimiter.Warn(d.cfg.Log, "forwarding a packet whose claim was accepted", "switch", h.packet.Switch.dpid, "error", err)
			}
		}
	default:
		for _, h := range d.take(c.Claim) {
			h.Drop()
		}
	}
}

// awaitArrival sends a barrier behind the probe of a claim. The barrier's reply shows that the
// probe has reached the known host's switch.
func (d *tentativePackets) awaitArrival(claim *hosts.Claim) {
	s, ok := d.prober.switches.get(claim.Host.At.Switch)
	if !ok {
		return
	}
	claim.MarkSent()
	bt, err := s.ch.sendBatch(nil)
	if err != nil {
		return // an empty batch always encodes
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.barriers[claim] = bt
}

// checkArrivals marks the claims whose probes have reached the known host's switch.
func (d *tentativePackets) checkArrivals(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for claim, bt := range d.barriers {
		select {
		case <-bt.done:
			claim.MarkDelivered(now)
			delete(d.barriers, claim)
		default:
			if claim.Outcome() != hosts.Pending {
				delete(d.barriers, claim)
			}
		}
	}
}

// run settles pending claims until ctx ends.
func (d *tentativePackets) run(ctx context.Context) {
	tickUntilIdle(ctx, d.wake, max(d.cfg.HostConfirm/16, time.Millisecond), func(now time.Time) bool {
		d.checkArrivals(now)
		changes, again, left := d.prober.hosts.CheckClaims(now)
		d.onChanges(changes)
		for _, claim := range again {
			d.prober.probeKnownPort(claim)
		}
		return left
	})
}

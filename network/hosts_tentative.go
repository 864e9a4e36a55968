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
	// refused. For a claim that waits for a switch only one is held, because that may take long.
	maxHeldPerBinding = 8
	// settleMargin is how much later than expected a claim may be settled before its held packets
	// are forwarded without a decision.
	settleMargin = 10 * time.Second
)

// tentativePackets holds packets whose claim about a host's place or address is still pending,
// because hosts that received the packets would believe the claim.
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
	switch {
	case claim.Outcome() == hosts.Confirmed:
		return Continue
	case claim.Outcome() == hosts.Rejected, !d.hasRoom(claim):
		return Stop
	}
	if h, err := p.Hold(timeout + settleMargin); err == nil {
		d.held[claim] = append(d.held[claim], h)
	}
	return Stop
}

// holdAgain keeps a held packet until a second claim is settled, and reports whether that claim has
// been accepted meanwhile. If it has been refused or there is no room, holdAgain drops the packet.
func (d *tentativePackets) holdAgain(claim *hosts.Claim, h *Held) (accepted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case claim.Outcome() == hosts.Confirmed:
		return true
	case claim.Outcome() == hosts.Pending && d.hasRoom(claim):
		d.held[claim] = append(d.held[claim], h)
	default:
		h.Drop()
	}
	return false
}

// hasRoom reports whether one more packet may be held for a claim. The mutex is held.
func (d *tentativePackets) hasRoom(claim *hosts.Claim) bool {
	limit := maxHeldPerBinding
	if claim.Waiting() {
		limit = 1
	}
	return len(d.held[claim]) < limit
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
			d.prober.probeKnownPort(c.Claim.Question())
			d.awaitArrival(c.Claim)
		}
		d.wake.set()
	case hosts.ClaimAccepted:
		for _, h := range d.take(c.Claim) {
			d.release(h, c.From)
		}
	default:
		for _, h := range d.take(c.Claim) {
			h.Drop()
		}
	}
}

// release forwards a held packet if the accepted claim was made at its port. Packets of hosts that
// made the same claim before are dropped: a receiver that believed them would ignore the newest
// one, because Linux ignores a second ARP announcement within one second. A packet whose sender had
// moved may claim an address as well; it is held again until that claim is settled.
func (d *tentativePackets) release(h *Held, winner PortRef) {
	p := h.Packet()
	at := PortRef{Switch: p.Switch.dpid, Port: p.InPort}
	if at != winner {
		h.Drop()
		return
	}
	if next := d.prober.hosts.PendingClaim(&p.Headers, at); next != nil && !d.holdAgain(next, h) {
		return
	}
	if err := h.Forward(); err != nil {
		p.Switch.logLimiter.Warn(d.cfg.Log, "forwarding a packet whose claim was accepted", "switch", p.Switch.dpid, "error", err)
	}
}

// awaitArrival sends a barrier behind the probe of a claim. The barrier's reply shows that the
// probe has reached the known host's switch.
func (d *tentativePackets) awaitArrival(claim *hosts.Claim) {
	s, ok := d.prober.switches.get(claim.Question().Host.At.Switch)
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
			d.prober.probeKnownPort(claim.Question())
		}
		return left
	})
}

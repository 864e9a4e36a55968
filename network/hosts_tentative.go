package network

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
)

const (
	// maxHeldPerBinding is how many packets are held until one claim is believed or refused.
	// One that waits for a switch holds one: it may take long.
	maxHeldPerBinding = 8
	// settleMargin is by how much the clock of what is in doubt may be late before what is
	// held goes on by itself.
	settleMargin = 10 * time.Second
)

// tentativePackets are the packets that claim what is in doubt: who hears them would believe it.
type tentativePackets struct {
	cfg    *Config
	prober *hostProber
	// onChanges passes on what the host table has found out.
	onChanges func([]hosts.Change)

	mu   sync.Mutex
	held map[*hosts.Doubt][]*Held
	// barriers are the barriers behind the first questions.
	barriers map[*hosts.Doubt]*batch
	wake     signal // a claim is in doubt
}

func newTentativePackets(c *Config, a *hostProber, onChanges func([]hosts.Change)) tentativePackets {
	return tentativePackets{
		cfg: c, prober: a, onChanges: onChanges,
		held: map[*hosts.Doubt][]*Held{}, barriers: map[*hosts.Doubt]*batch{}, wake: newSignal(),
	}
}

// hold keeps a packet until its claim is believed or refused, which may have happened
// since it came. Without room it is lost, as its sender has to expect of any packet.
func (d *tentativePackets) hold(x *hosts.Doubt, p *PacketIn, settled time.Duration) Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	most := maxHeldPerBinding
	if x.Waits() {
		most = 1
	}
	switch {
	case x.Outcome() == hosts.Confirmed:
		return Continue
	case x.Outcome() == hosts.Denied, len(d.held[x]) >= most:
		return Stop
	}
	if h, err := p.Hold(settled + settleMargin); err == nil {
		d.held[x] = append(d.held[x], h)
	}
	return Stop
}

// take ends the holding of the packets of a claim.
func (d *tentativePackets) take(x *hosts.Doubt) []*Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := d.held[x]
	delete(d.held, x)
	return held
}

// filter keeps back what claims, by ARP or neighbour discovery, what is not believed. It
// comes after the services: what they know, they know better.
func (d *tentativePackets) filter(p *PacketIn) Verdict {
	if len(p.claims) == 0 || !p.Headers.Has(packet.ARP) && !p.Headers.Has(packet.ND) {
		return Continue
	}
	for _, c := range p.claims {
		switch {
		case c.Kind == hosts.Doubted:
			if d.hold(c.Doubt, p, d.cfg.HostConfirm+d.prober.hosts.Patience()) == Stop {
				return Stop
			}
		case c.Kind == hosts.Refused && c.Why != hosts.Full:
			return Stop
		}
	}
	return Continue
}

// handle acts on a claim that has come into doubt, is believed or is refused.
func (d *tentativePackets) handle(c hosts.Change) {
	switch c.Kind {
	case hosts.Doubted:
		if c.New {
			d.prober.probeKnownPort(c.Doubt)
			d.awaitArrival(c.Doubt)
		}
		d.wake.set()
	case hosts.Believed:
		for _, h := range d.take(c.Doubt) {
			if err := h.Forward(); err != nil {
				h.packet.Switch.logLimiter.Warn(d.cfg.Log, "forwarding what was in doubt", "switch", h.packet.Switch.dpid, "error", err)
			}
		}
	default:
		for _, h := range d.take(c.Doubt) {
			h.Drop()
		}
	}
}

// awaitArrival has the claim know when the question has reached the host's switch, which the
// reply to a barrier behind it says.
func (d *tentativePackets) awaitArrival(x *hosts.Doubt) {
	s, ok := d.prober.switches.get(x.Host.At.Switch)
	if !ok {
		return
	}
	x.UnderWay()
	bt, err := s.ch.sendBatch(nil)
	if err != nil {
		return // nothing to encode: it does not happen
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.barriers[x] = bt
}

// checkArrivals tell claims whose question has reached the host's switch.
func (d *tentativePackets) checkArrivals(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for x, bt := range d.barriers {
		select {
		case <-bt.done:
			x.Reached(now)
			delete(d.barriers, x)
		default:
			if x.Outcome() != hosts.Open {
				delete(d.barriers, x)
			}
		}
	}
}

// run is the clock of what is in doubt.
func (d *tentativePackets) run(ctx context.Context) {
	tickUntilIdle(ctx, d.wake, max(d.cfg.HostConfirm/16, time.Millisecond), func(now time.Time) bool {
		d.checkArrivals(now)
		changes, again, left := d.prober.hosts.Due(now)
		d.onChanges(changes)
		for _, x := range again {
			d.prober.probeKnownPort(x)
		}
		return left
	})
}

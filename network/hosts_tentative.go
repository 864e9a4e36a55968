package network

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
)

const (
	// maxHeldByDoubt is how many packets are held until one claim is believed or refused.
	// One that waits for a switch holds one: it may take long.
	maxHeldByDoubt = 8
	// settleWithin is by how much the clock of what is in doubt may be late before what is
	// held goes on by itself.
	settleWithin = 10 * time.Second
)

// doubted are the packets that claim what is in doubt: who hears them would believe it.
type doubted struct {
	cfg   *Config
	asker *asker
	// changed passes on what the host table has found out.
	changed func([]hosts.Change)

	mu   sync.Mutex
	held map[*hosts.Doubt][]*Held
	// asked are the barriers behind the first questions.
	asked map[*hosts.Doubt]*batch
	wake  signal // a claim is in doubt
}

func newDoubted(c *Config, a *asker, changed func([]hosts.Change)) doubted {
	return doubted{
		cfg: c, asker: a, changed: changed,
		held: map[*hosts.Doubt][]*Held{}, asked: map[*hosts.Doubt]*batch{}, wake: newSignal(),
	}
}

// hold keeps a packet until its claim is believed or refused, which may have happened
// since it came. Without room it is lost, as its sender has to expect of any packet.
func (d *doubted) hold(x *hosts.Doubt, p *PacketIn, settled time.Duration) Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	most := maxHeldByDoubt
	if x.Waits() {
		most = 1
	}
	switch {
	case x.Outcome() == hosts.Confirmed:
		return Continue
	case x.Outcome() == hosts.Denied, len(d.held[x]) >= most:
		return Stop
	}
	if h, err := p.Hold(settled + settleWithin); err == nil {
		d.held[x] = append(d.held[x], h)
	}
	return Stop
}

// take ends the holding of the packets of a claim.
func (d *doubted) take(x *hosts.Doubt) []*Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := d.held[x]
	delete(d.held, x)
	return held
}

// judge keeps back what claims, by ARP or neighbour discovery, what is not believed. It
// comes after the services: what they know, they know better.
func (d *doubted) judge(p *PacketIn) Verdict {
	if len(p.claims) == 0 || !p.Headers.Has(packet.ARP) && !p.Headers.Has(packet.ND) {
		return Continue
	}
	for _, c := range p.claims {
		switch {
		case c.Kind == hosts.Doubted:
			if d.hold(c.Doubt, p, d.cfg.HostConfirm+d.asker.hosts.Patience()) == Stop {
				return Stop
			}
		case c.Kind == hosts.Refused && c.Why != hosts.Full:
			return Stop
		}
	}
	return Continue
}

// change acts on a claim that has come into doubt, is believed or is refused.
func (d *doubted) change(c hosts.Change) {
	switch c.Kind {
	case hosts.Doubted:
		if c.New {
			d.asker.whereItWas(c.Doubt)
			d.follow(c.Doubt)
		}
		d.wake.set()
	case hosts.Believed:
		for _, h := range d.take(c.Doubt) {
			if err := h.Forward(); err != nil {
				h.packet.Switch.limiter.Warn(d.cfg.Log, "forwarding what was in doubt", "switch", h.packet.Switch.dpid, "error", err)
			}
		}
	default:
		for _, h := range d.take(c.Doubt) {
			h.Drop()
		}
	}
}

// follow has the claim know when the question has reached the host's switch, which the
// reply to a barrier behind it says.
func (d *doubted) follow(x *hosts.Doubt) {
	s, ok := d.asker.switches.get(x.Host.At.Switch)
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
	d.asked[x] = bt
}

// arrivals tell claims whose question has reached the host's switch.
func (d *doubted) arrivals(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for x, bt := range d.asked {
		select {
		case <-bt.done:
			x.Reached(now)
			delete(d.asked, x)
		default:
			if x.Outcome() != hosts.Open {
				delete(d.asked, x)
			}
		}
	}
}

// run is the clock of what is in doubt.
func (d *doubted) run(ctx context.Context) {
	whileWoken(ctx, d.wake, max(d.cfg.HostConfirm/16, time.Millisecond), func(now time.Time) bool {
		d.arrivals(now)
		changes, again, left := d.asker.hosts.Due(now)
		d.changed(changes)
		for _, x := range again {
			d.asker.whereItWas(x)
		}
		return left
	})
}

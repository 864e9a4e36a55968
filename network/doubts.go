package network

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
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
	mu   sync.Mutex
	held map[*hosts.Doubt][]*Held
	// asked are the barriers behind the first questions.
	asked map[*hosts.Doubt]*batch
	wake  chan struct{} // a claim is in doubt
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
func (n *Network) judge(p *PacketIn) Verdict {
	if len(p.claims) == 0 || !p.Headers.Has(packet.ARP) && !p.Headers.Has(packet.ND) {
		return Continue
	}
	for _, c := range p.claims {
		switch {
		case c.Kind == hosts.Doubted:
			if n.doubted.hold(c.Doubt, p, n.cfg.HostConfirm+n.hosts.Patience()) == Stop {
				return Stop
			}
		case c.Kind == hosts.Refused && c.Why != hosts.Full:
			return Stop
		}
	}
	return Continue
}

// doubtChange acts on a claim that has come into doubt, is believed or is refused.
func (n *Network) doubtChange(c hosts.Change) {
	switch c.Kind {
	case hosts.Doubted:
		if c.New {
			n.askWhereItWas(c.Doubt)
			n.doubted.follow(n, c.Doubt)
		}
		select {
		case n.doubted.wake <- struct{}{}:
		default:
		}
	case hosts.Believed:
		for _, h := range n.doubted.take(c.Doubt) {
			if err := h.Forward(); err != nil {
				h.packet.Switch.limiter.Warn(n.log, "forwarding what was in doubt", "switch", h.packet.Switch.dpid, "error", err)
			}
		}
	default:
		for _, h := range n.doubted.take(c.Doubt) {
			h.Drop()
		}
	}
}

// follow has the claim know when the question has reached the host's switch, which the
// reply to a barrier behind it says.
func (d *doubted) follow(n *Network, x *hosts.Doubt) {
	s, ok := n.Switch(x.Host.At.Switch)
	if !ok {
		return
	}
	x.UnderWay()
	bt, err := s.sendBatch(nil)
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

// askWhereItWas asks a host, at the port behind which it is known, for its addresses.
func (n *Network) askWhereItWas(x *hosts.Doubt) {
	for _, a := range x.Ask {
		n.askAt(x.Host, a)
	}
}

// askAt asks a host, at the port behind which it is known, for one of its addresses.
func (n *Network) askAt(h Host, a netip.Addr) {
	s, ok := n.Switch(h.At.Switch)
	if !ok {
		return
	}
	var frame []byte
	if a.Is4() {
		frame = packet.AppendARP(nil, packet.Frame{Dst: h.MAC, Src: probeMAC, VLAN: h.VLAN},
			packet.ARPMessage{Op: packet.ARPRequest, SenderMAC: probeMAC, Sender: netip.IPv4Unspecified(), Target: a})
	} else {
		frame = packet.AppendNeighborSolicitation(nil, probeMAC, probeAddr6, a, h.VLAN)
		copy(frame, h.MAC[:]) // nobody else need hear it
	}
	if err := s.PacketOut(openflow.PortController, []openflow.Action{openflow.Output(h.At.Port)}, frame); err != nil {
		s.limiter.Warn(n.log, "asking a host whether it is still there", "port", h.At, "address", a, "error", err)
	}
}

// runDoubts is the clock of what is in doubt.
func (n *Network) runDoubts(ctx context.Context) {
	whileWoken(ctx, n.doubted.wake, max(n.cfg.HostConfirm/16, time.Millisecond), func(now time.Time) bool {
		n.doubted.arrivals(now)
		changes, again, left := n.hosts.Due(now)
		n.hostChanges(changes)
		for _, x := range again {
			n.askWhereItWas(x)
		}
		return left
	})
}

// whileWoken is a clock for what there is seldom: woken, it calls f each interval for as
// long as f says that something is left. It ends with ctx.
func whileWoken(ctx context.Context, wake <-chan struct{}, interval time.Duration, f func(now time.Time) (left bool)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		tick := time.NewTicker(interval)
		for left := true; left && ctx.Err() == nil; {
			select {
			case <-ctx.Done():
			case now := <-tick.C:
				left = f(now)
			}
		}
		tick.Stop()
	}
}

// KeepHosts has a service keep the hosts that it looks after: what others say of them
// is not believed, and nothing of them is in doubt. keeper tells the place and the MAC
// address in use of a host that is looked for by its MAC address or, if that is zero, by
// its IP address; it must not wait. KeepHosts must not be called once Run has been.
func (n *Network) KeepHosts(keeper func(openflow.MAC, netip.Addr) (Pin, bool)) {
	if n.running.Load() {
		panic("network: KeepHosts after Run")
	}
	n.keeper = keeper
}

// keep asks the service that keeps hosts.
func (n *Network) keep(mac openflow.MAC, addr netip.Addr) (Pin, bool) {
	if n.keeper == nil {
		return Pin{}, false
	}
	return n.keeper(mac, addr)
}

// PlaceHost says where a host is that a service looks after, and which address it has,
// so that it need not be seen there first.
func (n *Network) PlaceHost(mac openflow.MAC, addr netip.Addr, at PortRef) {
	n.hostChanges(n.hosts.Place(mac, addr, at, time.Now()))
}

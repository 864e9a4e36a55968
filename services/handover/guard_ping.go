package handover

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
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

// ping identifies an ARP request by the port and the device's address.
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

const (
	// unreachableAge is how long a host is kept after its last packet.
	unreachableAge = 10 * time.Minute
	// maxUnreachable bounds the hosts that are reported at one port.
	maxUnreachable = 8
)

// unreachableHosts holds the hosts at edge ports that use an address of a network of devices but hold
// no lease. Packets of devices go to a border port, so they never reach such a host.
type unreachableHosts struct {
	mu    sync.Mutex
	ports map[network.PortRef][]unreachableHost
}

// unreachableHost is one host of unreachableHosts.
type unreachableHost struct {
	ip   netip.Addr
	mac  openflow.MAC
	last time.Time
}

// newUnreachableHosts returns unreachableHosts without any host.
func newUnreachableHosts() *unreachableHosts {
	return &unreachableHosts{ports: map[network.PortRef][]unreachableHost{}}
}

// add records a host, and reports whether the host is new and has to be reported. It does not record
// more than maxUnreachable hosts at one port.
func (s *unreachableHosts) add(at network.PortRef, ip netip.Addr, mac openflow.MAC, now time.Time) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := slices.DeleteFunc(s.ports[at], func(x unreachableHost) bool { return now.Sub(x.last) > unreachableAge })
	i := slices.IndexFunc(here, func(x unreachableHost) bool { return x.ip == ip })
	switch {
	case i >= 0:
		here[i].last = now
	case len(here) < maxUnreachable:
		here, first = append(here, unreachableHost{ip, mac, now}), true
	}
	s.ports[at] = here
	return first
}

// errors returns a line for each host that was seen lately.
func (s *unreachableHosts) errors(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for at, here := range s.ports {
		for _, x := range here {
			if now.Sub(x.last) <= unreachableAge {
				out = append(out, "host "+x.ip.String()+" ("+x.mac.String()+") at port "+at.String()+": "+cannotReach)
			}
		}
	}
	return out
}

// cannotReach explains why devices do not reach a host, and how to change that.
const cannotReach = "devices cannot reach it: it has an address in their network, no lease, and stands behind no border port. " +
	"Register it as a device with this address and let it ask by DHCP, or connect it behind a border port, or give it an address outside of the network"

// noteUnreachable records and reports a host that claims an address of a network of devices but holds
// no lease.
func (s *guards) noteUnreachable(v *view, at network.PortRef, h *packet.Headers, arrived time.Time) {
	if _, within := v.homeOf(h.Src); !within {
		return
	}
	if _, device := s.registry.DeviceByMAC(h.EthSrc); device {
		return
	}
	if s.unreachable.add(at, h.Src, h.EthSrc, arrived) {
		s.log.Warn("a host without a lease has an address in a network of devices, which cannot reach it", "ip", h.Src, "mac", h.EthSrc, "port", at)
		s.publish("host.unreachable", map[string]any{"ip": h.Src, "mac": h.EthSrc, "port": at.String(), "reason": cannotReach})
	}
}

// askBehindBorder sends a device's ARP request for an address of its network out of the border ports,
// where the device's packets go, and reports whether it did. A host with that address at an edge port
// must not answer, since the device's packets do not reach it.
func (s *guards) askBehindBorder(v *view, asker registry.Device, h *packet.Headers) bool {
	home, within := v.homeOf(h.Dst)
	d, ok := s.leaseHolder(h.Src)
	if !within || !ok || d.ID != asker.ID {
		return false
	}
	frame := packet.AppendARPRequest(nil, d.HomeMAC(), h.Src, h.Dst, 0)
	for at, border := range v.borders {
		if border.Peer == home {
			_ = s.net.Send(at, frame) // the device asks again
		}
	}
	return true
}

// relayAnswer passes an ARP reply from behind a border port on to the device that has asked.
func (s *guards) relayAnswer(h *packet.Headers) bool {
	d, ok := s.leaseHolder(h.Dst)
	if !ok || h.EthDst != d.HomeMAC() {
		return false
	}
	l, _ := s.registry.Lease(d.ID)
	if l.Attachment == nil || l.Attachment.Peer != "" {
		return false
	}
	at := *l.Attachment
	_ = s.net.Send(at.At, packet.AppendARP(nil, packet.Frame{Dst: at.MAC, Src: h.ARPSHA}, // the device asks again
		packet.ARPMessage{Op: packet.ARPReply, SenderMAC: h.ARPSHA, Sender: h.Src, TargetMAC: at.MAC, Target: h.Dst}))
	return true
}

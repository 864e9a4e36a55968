package handover

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// askUnknown is how often routers at the border ports are asked for while their MAC address is
// unknown, askKnown how often after that.
const (
	askUnknown = time.Second
	askKnown   = 30 * time.Second
)

// gateways holds the routers at the border ports, whose MAC addresses devices have to know. Only
// packets from the right border port count, so a device cannot pass itself off as the gateway. Our
// own gateways are at the uplinks. Those of another domain's devices are asked for over the
// peering, where that domain's controller answers.
type gateways struct {
	asking kit.Loop // woken when somebody asks for a gateway with an unknown MAC address

	mu    sync.Mutex
	known map[netip.Addr]gateway // one entry for each wanted address
}

// gateway is one router at a border port.
type gateway struct {
	peer  string // domain whose peering leads to the gateway, empty for the uplinks
	mac   openflow.MAC
	asked time.Time
}

// newGateways returns gateways without any wanted address.
func newGateways() *gateways {
	return &gateways{asking: kit.NewLoop(), known: map[netip.Addr]gateway{}}
}

// setWanted sets the addresses that have to be found, each with the domain over whose peering, or
// an empty string.
func (g *gateways) setWanted(all map[netip.Addr]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := make(map[netip.Addr]gateway, len(all))
	for ip, peer := range all {
		k := g.known[ip]
		if k.peer != peer {
			k = gateway{peer: peer}
		}
		known[ip] = k
	}
	g.known = known
}

// learn records the sender of an ARP packet from a border port that leads to peer, and reports
// whether that changed a gateway's MAC address.
func (g *gateways) learn(ip netip.Addr, mac openflow.MAC, peer string) (changed bool) {
	if mac.IsZero() || mac.IsMulticast() || mac == serverMAC {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if k, wanted := g.known[ip]; wanted && k.peer == peer {
		changed = k.mac != mac
		k.mac = mac
		g.known[ip] = k
	}
	return changed
}

// lookup returns the gateway's MAC address. If it is unknown, lookup returns zero and starts
// asking for it.
func (g *gateways) lookup(ip netip.Addr) openflow.MAC {
	g.mu.Lock()
	mac := g.known[ip].mac
	g.mu.Unlock()
	if mac.IsZero() {
		g.asking.Wake()
	}
	return mac
}

// askAgain makes all gateways with an unknown MAC address due at once. It is called when a border
// port has come up.
func (g *gateways) askAgain() {
	g.mu.Lock()
	for ip, k := range g.known {
		if k.mac.IsZero() {
			k.asked = time.Time{}
			g.known[ip] = k
		}
	}
	g.mu.Unlock()
	g.asking.Wake()
}

// due returns the gateways that have to be asked for now, and marks them as asked.
func (g *gateways) due(now time.Time) map[netip.Addr]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[netip.Addr]string{}
	for ip, k := range g.known {
		pause := askUnknown
		if !k.mac.IsZero() {
			pause = askKnown
		}
		if now.Sub(k.asked) >= pause-askUnknown/10 {
			k.asked = now
			g.known[ip] = k
			out[ip] = k.peer
		}
	}
	return out
}

// findGateways sends ARP requests for the gateways that are due.
func (s *guards) findGateways(context.Context) {
	for ip, peer := range s.gateways.due(s.now()) {
		s.askAtBorders(ip, peer)
	}
}

// askAtBorders sends an ARP request for an address out of the border ports that lead to peer. The
// sender address is unspecified, so that receivers do not change their tables.
func (s *guards) askAtBorders(ip netip.Addr, peer string) {
	v := s.view.Load()
	if v == nil {
		return
	}
	frame := packet.AppendARPRequest(nil, serverMAC, netip.IPv4Unspecified(), ip, 0)
	for at, border := range v.borders {
		if border.Peer == peer {
			_ = s.net.Send(at, frame) // a switch that is down is asked again when it is back
		}
	}
}

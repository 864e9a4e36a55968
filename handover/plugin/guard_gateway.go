package plugin

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
)

// How often routers at the border ports are asked for.
const (
	askUnknown = time.Second
	askKnown   = 30 * time.Second
)

// gateways are the routers at the border ports, whose MAC addresses devices have to
// know. Only what comes in by the right border port counts: a device cannot pass itself
// off as the gateway. Our own are at the uplinks; those of another domain's
// devices are asked for over the peering, where that domain's controller answers.
type gateways struct {
	asking service.Loop // woken when somebody asks for one that is not known

	mu    sync.Mutex
	known map[netip.Addr]gateway // of all addresses that are wanted
}

type gateway struct {
	peer  string // domain whose peering leads to it, empty for the uplinks
	mac   openflow.MAC
	asked time.Time
}

func newGateways() *gateways {
	return &gateways{asking: service.NewLoop(), known: map[netip.Addr]gateway{}}
}

// want says which addresses are to be found, and over the peering with whom.
func (g *gateways) want(all map[netip.Addr]string) {
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

// heard takes note of what came in by a border port that leads to peer, and says whether
// that was news about a gateway.
func (g *gateways) heard(ip netip.Addr, mac openflow.MAC, peer string) (news bool) {
	if mac.IsZero() || mac.IsMulticast() || mac == serverMAC {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if k, wanted := g.known[ip]; wanted && k.peer == peer {
		news = k.mac != mac
		k.mac = mac
		g.known[ip] = k
	}
	return news
}

// find returns the MAC address, or has it looked for.
func (g *gateways) find(ip netip.Addr) openflow.MAC {
	g.mu.Lock()
	mac := g.known[ip].mac
	g.mu.Unlock()
	if mac.IsZero() {
		g.asking.Wake()
	}
	return mac
}

// reached has those that are not known asked for at once: a border port has come up.
func (g *gateways) reached() {
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

// due lists what has to be asked for now.
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

// findGateways asks for routers at the border ports that are to be asked for now.
func (s *guards) findGateways(context.Context) {
	for ip, peer := range s.gateways.due(s.now()) {
		s.askAtBorders(ip, peer)
	}
}

// askAtBorders sends an ARP request for an address out of the border ports that lead to
// peer. The sender has no address, so that no table of the receiver changes.
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

package handover

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// serverMAC is the locally administered address of the DHCP server, which also sends the service's
// ARP requests. It belongs to no host.
var serverMAC = openflow.MAC{0x02, 0x51, 0x1c, 0, 0, 0x02}

// guards answers ARP, and enforces which addresses hosts may use and which packets they may send.
type guards struct {
	*core
	placement   *placement
	gateways    *gateways
	pings       *pings
	floods      *floods
	forgers     *violation
	rogues      *violation
	unreachable *unreachableHosts

	// The lock of core guards the fields below. puntErrs holds the switches that refuse their punt
	// rules, with the errors.
	puntErrs map[openflow.DatapathID]string
	// spoofModes holds the mode that each switch accepts; cannotAnswer holds the switches that
	// cannot answer ARP.
	spoofModes   map[openflow.DatapathID]spoofMode
	cannotAnswer map[openflow.DatapathID]bool
}

// newGuards returns guards without any state yet.
func newGuards(p *placement) *guards {
	g := &guards{
		core: p.core, placement: p, gateways: newGateways(), pings: newPings(), floods: newFloods(),
		forgers: newForgers(), rogues: newRogues(), unreachable: newUnreachableHosts(),
		puntErrs: map[openflow.DatapathID]string{}, spoofModes: map[openflow.DatapathID]spoofMode{}, cannotAnswer: map[openflow.DatapathID]bool{},
	}
	p.served = g.updateAnswers
	return g
}

// view is an immutable extract of the state for the packet-in handler.
type view struct {
	borders map[network.PortRef]Border
	// gateways and servers are the addresses that ARP is answered for.
	gateways map[netip.Addr]viewGateway
	servers  map[netip.Addr]bool
	// own holds the addresses of gateways and servers. No host at an edge port may claim one.
	own []netip.Addr
	// networks holds the networks of devices, including those of visitors.
	networks []viewNetwork
	// given holds the addresses that our own pools give out.
	given []netip.Prefix
	// unknown reports whether the service handles DHCP of unknown devices: a pool learns them, or
	// a neighbour may know them.
	unknown bool
}

// homeOf returns the domain that the devices' network with the address ip belongs to. The name is
// empty for our own domain. homeOf returns false if no network of devices contains the address.
func (v *view) homeOf(ip netip.Addr) (home string, within bool) {
	for _, n := range v.networks {
		if n.prefix.Contains(ip) {
			return n.home, true
		}
	}
	return "", false
}

// viewNetwork is a network of devices, and the domain that they belong to.
type viewNetwork struct {
	prefix netip.Prefix
	home   string
}

// viewGateway is a gateway as the packet-in handler needs it.
type viewGateway struct {
	mac  openflow.MAC // as configured; zero if it is found by ARP
	peer string
}

// newView returns a view of the border ports and pools. find holds the gateways whose MAC address has
// to be found by ARP, each with its domain.
func newView(borders []Border, pools []registry.Pool) (v *view, find map[netip.Addr]string) {
	v = &view{borders: map[network.PortRef]Border{}, gateways: map[netip.Addr]viewGateway{}, servers: map[netip.Addr]bool{}}
	for _, b := range borders {
		v.borders[b.At] = b
	}
	find = map[netip.Addr]string{}
	for _, p := range pools {
		v.networks = append(v.networks, viewNetwork{p.Prefix, p.Home})
		if p.Home == "" {
			v.given = append(v.given, assignable(p)...)
		}
		v.unknown = v.unknown || p.Learn
		v.gateways[p.Gateway] = viewGateway{mac: p.GatewayMAC, peer: p.Home}
		if p.GatewayMAC.IsZero() {
			find[p.Gateway] = p.Home
		}
		if server := p.ServerID(); server != p.Gateway {
			v.servers[server] = true
		}
	}
	v.own = slices.AppendSeq(slices.Collect(maps.Keys(v.gateways)), maps.Keys(v.servers))
	slices.SortFunc(v.own, netip.Addr.Compare)
	return v, find
}

// refreshView publishes a new view for the packet-in handler. It is called whenever pools have
// changed.
func (s *guards) refreshView() {
	v, find := newView(s.settings.Borders, s.registry.Pools())
	v.unknown = v.unknown || len(s.settings.Neighbours) > 0
	s.gateways.setWanted(find)
	s.view.Store(v)
	s.wake()
}

// wholePacket makes a switch send whole packets to the controller.
const wholePacket = 0xffff

// peeringGuards returns one switch's rules that drop packets which another domain sends over a
// peering and no device's rule matches. Default forwarding would flood them. Examples are copies that
// are still in flight after a device has left, and anything else that a neighbour may send.
func peeringGuards(d openflow.DatapathID, borders []Border) []network.Rule {
	var rules []network.Rule
	for _, r := range borders {
		if r.Peer == "" || r.At.Switch != d {
			continue
		}
		for _, kind := range []uint16{packet.TypeIPv4, packet.TypeIPv6} {
			rules = append(rules, network.Rule{
				Switch: d, Stage: network.StageGuard, Offset: rule.GuardSource,
				Match: openflow.MustMatch(openflow.InPort(r.At.Port), openflow.EthType(kind)),
			})
		}
	}
	return rules
}

// anchored returns the border ports by which all traffic of a device comes and goes, wherever the
// device is. It returns false for an address whose device has no rules.
func (s *guards) anchored(ip netip.Addr) (network.Anchor, bool) {
	d, known := s.registry.DeviceByIP(ip)
	pin, kept := s.PlaceOf(openflow.MAC{}, ip)
	if !known || !kept {
		return network.Anchor{}, false
	}
	s.mu.Lock()
	m := s.placement.mobiles[d.ID]
	attached := m != nil && m.state != detached
	a := network.Anchor{MAC: d.HomeMAC(), Place: pin}
	var want route.Want
	if attached {
		want, a.Path = m.plan.Want(), m.plan.PathTo(pin.At)
	}
	s.mu.Unlock()
	for _, r := range want.Borders {
		a.Borders = append(a.Borders, r.At)
	}
	return a, attached
}

// moving returns the prefixes of hosts that may be devices of this service, and the border ports
// through which all their traffic passes.
func (s *guards) moving() network.Moving {
	v := s.view.Load()
	if v == nil {
		return network.Moving{}
	}
	m := network.Moving{Prefixes: v.given}
	for _, b := range s.settings.Borders {
		if b.Peer == "" {
			m.Borders = append(m.Borders, b.At)
		}
	}
	return m
}

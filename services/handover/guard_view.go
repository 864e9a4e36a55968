package handover

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// guards answers for addresses, and enforces which addresses hosts may use and what they may send.
type guards struct {
	*core
	placement   *placement
	gateways    *gateways
	pings       *pings
	floods      *floods
	forgers     *violation
	rogues      *violation
	unreachable *unreachableHosts

	// The lock of core guards the fields below.
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
	// own holds the addresses of both: nobody at an edge port may claim one.
	own []netip.Addr
	// networks holds the networks of devices, including those of visitors.
	networks []viewNetwork
	// given holds the addresses that our own pools give out.
	given []netip.Prefix
	// unknown reports whether the service handles DHCP of unknown devices: a pool learns them, or
	// a neighbour may know them.
	unknown bool
}

// homeOf returns the domain whose devices have addresses of the network that contains an address;
// it is empty for our own. It returns false if no network contains the address.
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

// newView returns the extract, and the gateways whose MAC address has to be found by ARP, each
// with its domain.
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

// refreshView publishes a new extract for the packet-in handler. It is called whenever pools have
// changed.
func (s *guards) refreshView() {
	v, find := newView(s.settings.Borders, s.registry.Pools())
	v.unknown = v.unknown || len(s.settings.Neighbours) > 0
	s.gateways.setWanted(find)
	s.view.Store(v)
	s.wake()
}

package plugin

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// guards answer for addresses, and hold hosts to what they may say and send.
type guards struct {
	*placement
	gateways *gateways
	pings    *pings
	floods   *floods
	forgers  *offence
	rogues   *offence
	strays   *strays

	// The lock of core guards these.
	puntErrs map[openflow.DatapathID]string
	// holding is how switches hold devices to their addresses, as far as they take it;
	// mute are those that cannot answer ARP.
	holding map[openflow.DatapathID]holding
	mute    map[openflow.DatapathID]bool
}

// newGuards returns what the service begins with.
func newGuards(p *placement) *guards {
	g := &guards{
		placement: p, gateways: newGateways(), pings: newPings(), floods: newFloods(),
		forgers: newForgers(), rogues: newRogues(), strays: newStrays(),
		puntErrs: map[openflow.DatapathID]string{}, holding: map[openflow.DatapathID]holding{}, mute: map[openflow.DatapathID]bool{},
	}
	p.served = g.teach
	return g
}

// view is an immutable extract of the state for the packet-in handler.
type view struct {
	borders map[network.PortRef]Border
	// gateways and servers are the addresses that ARP is answered for.
	gateways map[netip.Addr]viewGateway
	servers  map[netip.Addr]bool
	// own are both: nobody at an edge port may say that it has one.
	own []netip.Addr
	// prefixes are the networks of devices, with who visits.
	networks []viewNetwork
	// given are the addresses that our own pools give out.
	given []netip.Prefix
	// unknown says that DHCP of unknown devices is this service's business: a
	// pool learns them, or a neighbour may know them.
	unknown bool
}

// homeOf finds the domain whose devices have addresses of the network that an
// address is in; it is empty for our own.
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

type viewGateway struct {
	mac  openflow.MAC // as configured; zero if it is found by ARP
	peer string
}

// newView makes the extract, and says of which gateways the address has to be found.
func newView(borders []Border, pools []registry.Pool) (v *view, find map[netip.Addr]string) {
	v = &view{borders: map[network.PortRef]Border{}, gateways: map[netip.Addr]viewGateway{}, servers: map[netip.Addr]bool{}}
	for _, b := range borders {
		v.borders[b.At] = b
	}
	find = map[netip.Addr]string{}
	for _, p := range pools {
		v.networks = append(v.networks, viewNetwork{p.Prefix, p.Home})
		if p.Home == "" {
			v.given = append(v.given, given(p)...)
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

// refreshView publishes the state for the packet-in handler. It is called
// whenever pools have changed.
func (s *guards) refreshView() {
	v, find := newView(s.settings.Borders, s.registry.Pools())
	v.unknown = v.unknown || len(s.settings.Neighbours) > 0
	s.gateways.want(find)
	s.view.Store(v)
	s.wake()
}

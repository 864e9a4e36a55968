package network

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// keeper is the service that keeps hosts, if there is one: it tells the place and the MAC
// address in use of a host that is looked for by its MAC address or, if that is zero, by its
// IP address.
type keeper struct {
	tell func(openflow.MAC, netip.Addr) (Pin, bool)
}

// keeps asks the service for a host.
func (k *keeper) keeps(mac openflow.MAC, addr netip.Addr) (Pin, bool) {
	if k.tell == nil {
		return Pin{}, false
	}
	return k.tell(mac, addr)
}

// KeepHosts has a service keep the hosts that it looks after: what others say of them
// is not believed, and nothing of them is in doubt. keeper tells the place and the MAC
// address in use of a host that is looked for by its MAC address or, if that is zero, by
// its IP address; it must not wait. KeepHosts must not be called once Run has been.
func (n *Network) KeepHosts(keeper func(openflow.MAC, netip.Addr) (Pin, bool)) {
	if n.running.Load() {
		panic("network: KeepHosts after Run")
	}
	n.keeper.tell = keeper
}

// PlaceHost says where a host is that a service looks after, and which address it has,
// so that it need not be seen there first.
func (n *Network) PlaceHost(mac openflow.MAC, addr netip.Addr, at PortRef) {
	n.news.hostChanges(n.hosts.Place(mac, addr, at, time.Now()))
}

package network

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
)

// ErrVirtual says that an address is a service's, and that no host has it.
var ErrVirtual = errors.New("it is a virtual address, at no port: its service leads what goes there")

// Virtual is an address that a service takes packets for, and that no host has.
type Virtual struct {
	// Service is the name of the service.
	Service string
	// MAC is the Ethernet address by which the network answers for the address.
	MAC openflow.MAC
}

// virtuals holds the virtual addresses of all services.
type virtuals struct {
	mu sync.Mutex
	of map[netip.Addr]Virtual
}

// VirtualMAC returns the Ethernet address that a virtual address has unless its service gives it
// another: a locally administered one that ends as the address does.
func VirtualMAC(a netip.Addr) openflow.MAC {
	b := a.As16()
	return openflow.MAC{0x02, 0x51, 0x1d, b[13], b[14], b[15]}
}

// SetVirtual replaces the virtual addresses of a service; a zero MAC address stands for that of
// VirtualMAC. The network answers ARP requests and neighbour solicitations for them, in every VLAN,
// and does not believe hosts that claim them; one that has had such an address is forgotten. What
// goes to their MAC addresses and is not taken by the service ends at the controller. It is an error,
// and changes nothing, if another service has one of the addresses, or if one can be no host's.
func (n *Network) SetVirtual(service string, all map[netip.Addr]openflow.MAC) error {
	changes, err := n.virtuals.set(n.hosts, service, all)
	n.news.hostChanges(changes)
	return err
}

// set replaces the virtual addresses of a service, and returns what follows for hosts.
func (x *virtuals) set(table *hosts.Table, service string, all map[netip.Addr]openflow.MAC) ([]hosts.Change, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	of, macs := map[netip.Addr]Virtual{}, map[netip.Addr]openflow.MAC{}
	for a, v := range x.of {
		if v.Service != service {
			of[a] = v
		}
	}
	for a, mac := range all {
		a = a.Unmap()
		if !a.IsGlobalUnicast() && !a.IsLinkLocalUnicast() {
			return nil, fmt.Errorf("virtual address %v: it is no unicast address", a)
		}
		if other, taken := of[a]; taken {
			return nil, fmt.Errorf("virtual address %v: it belongs to %s already", a, other.Service)
		}
		if mac.IsZero() {
			mac = VirtualMAC(a)
		}
		if mac.IsMulticast() {
			return nil, fmt.Errorf("virtual address %v: %v is a group's Ethernet address", a, mac)
		}
		of[a] = Virtual{service, mac}
	}
	for a, v := range of {
		macs[a] = v.MAC
	}
	x.of = of
	return table.SetVirtual(macs), nil
}

// Virtual returns the virtual address a, and false if it is none.
func (n *Network) Virtual(a netip.Addr) (Virtual, bool) {
	n.virtuals.mu.Lock()
	defer n.virtuals.mu.Unlock()
	v, ok := n.virtuals.of[a.Unmap()]
	return v, ok
}

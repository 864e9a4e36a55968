package network

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
)

// ErrVirtual is returned for an address that belongs to a service and to no host.
var ErrVirtual = errors.New("it is a virtual address, at no port: its service forwards what is sent there")

// Virtual describes an address for which a service accepts packets and that no host has.
type Virtual struct {
	// Service is the name of the service.
	Service string
	// MAC is the Ethernet address with which the network answers for the address.
	MAC openflow.MAC
}

// virtuals holds the virtual addresses of all services.
type virtuals struct {
	mu     sync.Mutex
	byAddr map[netip.Addr]Virtual
}

// VirtualMAC returns the default Ethernet address of a virtual address: a locally administered one
// that ends with the last three bytes of the address.
func VirtualMAC(a netip.Addr) openflow.MAC {
	b := a.As16()
	return openflow.MAC{0x02, 0x51, 0x1d, b[13], b[14], b[15]}
}

// SetVirtual replaces the virtual addresses of a service; a zero MAC address means the one of
// VirtualMAC. The network answers ARP requests and neighbour solicitations for them in every VLAN,
// ignores hosts that claim them, and forgets a host that had one. Packets to their MAC addresses
// that the service does not handle are dropped at the controller. SetVirtual returns an error, and
// changes nothing, if another service has one of the addresses or if one is no unicast address.
func (n *Network) SetVirtual(service string, all map[netip.Addr]openflow.MAC) error {
	changes, err := n.virtuals.set(n.hosts, service, all)
	n.dispatcher.hostChanges(changes)
	return err
}

// set replaces the virtual addresses of a service, and returns the changes of hosts that follow.
func (x *virtuals) set(table *hosts.Table, service string, all map[netip.Addr]openflow.MAC) ([]hosts.Change, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	of, macs := map[netip.Addr]Virtual{}, map[netip.Addr]openflow.MAC{}
	for a, v := range x.byAddr {
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
	x.byAddr = of
	return table.SetVirtual(macs), nil
}

// Virtual returns the virtual address a. It returns false if a is not virtual.
func (n *Network) Virtual(a netip.Addr) (Virtual, bool) {
	n.virtuals.mu.Lock()
	defer n.virtuals.mu.Unlock()
	v, ok := n.virtuals.byAddr[a.Unmap()]
	return v, ok
}

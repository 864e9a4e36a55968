package registry

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Policy is how the devices of a class are moved.
type Policy string

// The policies.
const (
	// PolicySaving switches over in place, with nothing sent twice.
	PolicySaving Policy = "saving"
	// PolicySeamless sends to both places before the move.
	PolicySeamless Policy = "seamless"
)

// Trigger is what may move a device.
type Trigger string

// The triggers. The empty one means TriggerSigned for a device with a key and
// TriggerPorts for one without. A device that was learned attaches anywhere by it,
// but then moves only between ports of the list until its lease has ended.
const (
	// TriggerSigned asks for a request that is signed with the device's key.
	TriggerSigned Trigger = "signed"
	// TriggerPorts takes any request of the device at a port that is on the
	// device's or its class's list.
	TriggerPorts Trigger = "ports"
	// TriggerOpen takes any request that bears a MAC of the device.
	TriggerOpen Trigger = "open"
)

// Class is what devices have in common.
type Class struct {
	Name    string            `json:"name"`
	Policy  Policy            `json:"policy"`
	Trigger Trigger           `json:"trigger,omitempty"`
	Ports   []network.PortRef `json:"ports,omitempty"`
	// Overlap is how long the old branch stays after a seamless move.
	Overlap time.Duration `json:"overlap,omitempty"`
}

// Pool is a range of addresses with what a host there has to know.
type Pool struct {
	Name   string       `json:"name"`
	Prefix netip.Prefix `json:"prefix"`
	// First and Last bound what is given out, both included.
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
	// Gateway is the router that hosts are told of. GatewayMAC answers ARP for
	// it; zero leaves the choice to the service.
	Gateway    netip.Addr   `json:"gateway"`
	GatewayMAC openflow.MAC `json:"gateway_mac,omitzero"`
	// Server is the DHCP server's address; unset, it is the gateway's.
	Server    netip.Addr    `json:"server,omitzero"`
	LeaseTime time.Duration `json:"lease_time"`
	DNS       []netip.Addr  `json:"dns,omitempty"`
	MTU       int           `json:"mtu,omitempty"`
	Domain    string        `json:"domain,omitempty"`
	// Learn admits unknown devices, into Class.
	Learn bool   `json:"learn,omitempty"`
	Class string `json:"class,omitempty"`
	// Home names the domain whose pool this is; it is empty for our own. Another
	// domain's pool has no range: it only says what its visitors are told.
	Home string `json:"home,omitempty"`
}

// ServerID is the address that the DHCP server has towards hosts of the pool.
func (p Pool) ServerID() netip.Addr {
	if p.Server.IsValid() {
		return p.Server
	}
	return p.Gateway
}

// Device is one host, whatever interface it uses.
type Device struct {
	ID string `json:"id"`
	// MACs are all its addresses; the first is the one seen beyond the edge.
	MACs  []openflow.MAC `json:"macs"`
	Class string         `json:"class,omitempty"`
	Pool  string         `json:"pool,omitempty"`
	// IP is a static binding; unset, the pool decides.
	IP netip.Addr `json:"ip,omitzero"`
	// Key signs requests to move. It is never printed.
	Key   []byte            `json:"key,omitempty"`
	Ports []network.PortRef `json:"ports,omitempty"`
	// Home names the domain a visitor belongs to; it is empty for our own.
	Home string `json:"home,omitempty"`
	// Learned devices registered themselves by asking for an address.
	Learned bool `json:"learned,omitempty"`
}

// HomeMAC is the address that everybody beyond the edge sees.
func (d Device) HomeMAC() openflow.MAC {
	if len(d.MACs) == 0 {
		return openflow.MAC{}
	}
	return d.MACs[0]
}

// guest says whether nobody has declared it: it was learned, or is a visitor.
func (d Device) guest() bool { return d.Learned || d.Home != "" }

// Has says whether the MAC is one of the device's.
func (d Device) Has(m openflow.MAC) bool { return slices.Contains(d.MACs, m) }

// String prints the device without its key.
func (d Device) String() string {
	return fmt.Sprintf("device %s (class %q, pool %q, %v)", d.ID, d.Class, d.Pool, d.MACs)
}

// GoString is String, so that no way of printing shows the key.
func (d Device) GoString() string { return d.String() }

// clone is a copy that shares nothing with d.
func (d Device) clone() Device {
	d.MACs, d.Key, d.Ports = slices.Clone(d.MACs), slices.Clone(d.Key), slices.Clone(d.Ports)
	return d
}

// Attachment is where a device is.
type Attachment struct {
	At network.PortRef `json:"at"`
	// MAC is the one it uses there; zero, if At leads to another domain.
	MAC openflow.MAC `json:"mac,omitzero"`
	// Peer names the domain that At leads to.
	Peer  string    `json:"peer,omitempty"`
	Since time.Time `json:"since"`
}

// Lease is an address that a device holds.
type Lease struct {
	Device  string     `json:"device"`
	IP      netip.Addr `json:"ip"`
	Pool    string     `json:"pool,omitempty"`
	Granted time.Time  `json:"granted"`
	// Expires is when it ends unless renewed. While the device is attached in
	// another domain it is renewed there, and nothing ends here.
	Expires  time.Time `json:"expires,omitzero"`
	ClientID []byte    `json:"client_id,omitempty"`
	// MAC is the hardware address by which the client asked.
	MAC        openflow.MAC `json:"mac,omitzero"`
	Attachment *Attachment  `json:"attachment,omitempty"`
	// Left is where the device asked from Attachment, by another interface: until it
	// has asked there again, only the device knows whether it has had the answer.
	Left *Attachment `json:"left,omitempty"`
	// Signed is the time in the newest signed request that was granted: none
	// that is as old counts again, also after a restart.
	Signed time.Time `json:"signed,omitzero"`
	// Released leases are kept so that the device gets the same address again.
	Released bool `json:"released,omitempty"`
}

// Active says whether the device may use the address at that time.
func (l Lease) Active(at time.Time) bool {
	return l.IP.IsValid() && !l.Released && (l.Away() || at.Before(l.Expires))
}

// Away says whether the device is attached in another domain.
func (l Lease) Away() bool { return l.Attachment != nil && l.Attachment.Peer != "" }

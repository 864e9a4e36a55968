package registry

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Policy selects how the devices of a class are moved.
type Policy string

// The policies.
const (
	// PolicySaving switches a device's packets over from one place to the other, without copies.
	PolicySaving Policy = "saving"
	// PolicySeamless sends packets to both places during a move.
	PolicySeamless Policy = "seamless"
)

// Trigger selects which DHCP requests may move a device.
type Trigger string

// The triggers. The empty trigger means TriggerSigned for a device with a key, and TriggerPorts for a
// device without. A learned device whose class has the empty trigger may attach at any port, but then
// moves only between ports of the list until its lease has ended.
const (
	// TriggerSigned requires a request that is signed with the device's key.
	TriggerSigned Trigger = "signed"
	// TriggerPorts accepts any request of the device at a port that is on the device's or its
	// class's list.
	TriggerPorts Trigger = "ports"
	// TriggerOpen accepts any request with a MAC of the device.
	TriggerOpen Trigger = "open"
)

// Class holds settings that devices share.
type Class struct {
	Name    string            `json:"name"`
	Policy  Policy            `json:"policy"`
	Trigger Trigger           `json:"trigger,omitempty"`
	Ports   []network.PortRef `json:"ports,omitempty"`
	// Overlap is how long the old branch stays after a seamless move.
	Overlap time.Duration `json:"overlap,omitempty"`
}

// Pool is a range of addresses, with the parameters that DHCP gives to hosts there.
type Pool struct {
	Name   string       `json:"name"`
	Prefix netip.Prefix `json:"prefix"`
	// First and Last are the first and the last address that the pool gives out.
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
	// Gateway is the router that DHCP tells hosts to use. GatewayMAC is the MAC address by which ARP
	// for Gateway is answered. If GatewayMAC is zero, the service finds the router's own by ARP.
	Gateway    netip.Addr   `json:"gateway"`
	GatewayMAC openflow.MAC `json:"gateway_mac,omitzero"`
	// Server is the DHCP server's address; if it is unset, the gateway's is used.
	Server    netip.Addr    `json:"server,omitzero"`
	LeaseTime time.Duration `json:"lease_time"`
	DNS       []netip.Addr  `json:"dns,omitempty"`
	MTU       int           `json:"mtu,omitempty"`
	Domain    string        `json:"domain,omitempty"`
	// Learn reports whether the pool admits unknown devices. They become devices of Class.
	Learn bool   `json:"learn,omitempty"`
	Class string `json:"class,omitempty"`
	// Home names the domain that the pool belongs to; it is empty for our own. Another domain's
	// pool has no range: it only holds the parameters for its visitors.
	Home string `json:"home,omitempty"`
}

// ServerID returns the DHCP server's address for hosts of the pool.
func (p Pool) ServerID() netip.Addr {
	if p.Server.IsValid() {
		return p.Server
	}
	return p.Gateway
}

// Device is one host, whatever interface it uses.
type Device struct {
	ID string `json:"id"`
	// MACs holds all the device's MAC addresses; hosts beyond the edge see only the first.
	MACs  []openflow.MAC `json:"macs"`
	Class string         `json:"class,omitempty"`
	Pool  string         `json:"pool,omitempty"`
	// IP is the address that the device is bound to. If it is unset, the device gets an address of
	// the pool.
	IP netip.Addr `json:"ip,omitzero"`
	// Key is the key with which the device signs its requests. It is never printed.
	Key   []byte            `json:"key,omitempty"`
	Ports []network.PortRef `json:"ports,omitempty"`
	// Home names the domain a visitor belongs to; it is empty for our own devices.
	Home string `json:"home,omitempty"`
	// Learned reports whether the device registered itself by asking for an address.
	Learned bool `json:"learned,omitempty"`
}

// HomeMAC returns the MAC address that everybody beyond the edge sees.
func (d Device) HomeMAC() openflow.MAC {
	if len(d.MACs) == 0 {
		return openflow.MAC{}
	}
	return d.MACs[0]
}

// guest reports whether the device is not declared: it was learned, or is a visitor.
func (d Device) guest() bool { return d.Learned || d.Home != "" }

// Has reports whether the MAC is one of the device's.
func (d Device) Has(m openflow.MAC) bool { return slices.Contains(d.MACs, m) }

// String returns the device without its key.
func (d Device) String() string {
	return fmt.Sprintf("device %s (class %q, pool %q, %v)", d.ID, d.Class, d.Pool, d.MACs)
}

// GoString returns String, so that no way of printing shows the key.
func (d Device) GoString() string { return d.String() }

// clone returns a copy that shares nothing with d.
func (d Device) clone() Device {
	d.MACs, d.Key, d.Ports = slices.Clone(d.MACs), slices.Clone(d.Key), slices.Clone(d.Ports)
	return d
}

// Attachment is the place where a device is attached.
type Attachment struct {
	At network.PortRef `json:"at"`
	// MAC is the MAC address that the device uses there; zero if At leads to another domain.
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
	// Expires is when the lease ends unless the device renews it. While the device is attached in
	// another domain, it renews the lease there, and the lease does not expire here.
	Expires  time.Time `json:"expires,omitzero"`
	ClientID []byte    `json:"client_id,omitempty"`
	// MAC is the hardware address by which the client asked.
	MAC        openflow.MAC `json:"mac,omitzero"`
	Attachment *Attachment  `json:"attachment,omitempty"`
	// Left is the device's previous place, if it moved from there to Attachment with another
	// interface. Until the device has asked at Attachment again, only the device knows whether it
	// has received the answer.
	Left *Attachment `json:"left,omitempty"`
	// Signed is the time in the newest granted signed request. No request that is as old or older
	// is accepted again, also after a restart.
	Signed time.Time `json:"signed,omitzero"`
	// Released reports whether the device or an operator has ended the lease. Such leases are kept so
	// that the device gets the same address again.
	Released bool `json:"released,omitempty"`
}

// Active reports whether the device may use the address at the given time.
func (l Lease) Active(at time.Time) bool {
	return l.IP.IsValid() && !l.Released && (l.Away() || at.Before(l.Expires))
}

// Away reports whether the device is attached in another domain.
func (l Lease) Away() bool { return l.Attachment != nil && l.Attachment.Peer != "" }

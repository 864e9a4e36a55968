package network

import "github.com/sluice-net/sluice/network/hosts"

// PortRole is what an operator says that a port is for.
type PortRole uint8

// The roles. A port without one may have as many hosts as any, and a link.
const (
	// PortAccess is for a few end hosts: so many, and no link to a switch.
	PortAccess PortRole = iota + 1
	// PortUplink leads to networks beyond this one, where servers of DHCP may be too.
	PortUplink
	// PortTrunk is for many hosts of this network: a switch that is not ours, an access
	// point, a machine with virtual ones; or for a link.
	PortTrunk
)

// hostsOfMany is how many hosts may be behind an uplink or a trunk: a switch's share.
const hostsOfMany = hosts.DefaultMaxPerSwitch

// PortRole returns the role of a port, zero for none.
func (n *Network) PortRole(at PortRef) PortRole { return n.cfg.PortRoles[at] }

// hostsBehind is how many hosts may be behind a port by its role; zero leaves it to the
// host table.
func (c *Config) hostsBehind(at PortRef) int {
	switch c.PortRoles[at] {
	case PortAccess:
		return c.AccessHosts
	case PortUplink, PortTrunk:
		return hostsOfMany
	}
	return 0
}

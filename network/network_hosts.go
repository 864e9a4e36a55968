package network

import (
	"net/netip"

	"github.com/sluice-net/sluice/openflow"
)

// Hosts returns every known host.
func (n *Network) Hosts() []Host { return n.hosts.All() }

// SetPinned replaces the hosts whose place never changes; see Config.Pinned. Hosts that are known
// at another place are removed from the host table.
func (n *Network) SetPinned(hosts map[netip.Addr]Pin) {
	n.dispatcher.hostChanges(n.hosts.SetPinned(hosts))
}

// HostByIP returns the host that uses an address, as the host table knows it.
func (n *Network) HostByIP(a netip.Addr) (Host, bool) { return n.hosts.ByIP(a) }

// HostStats counts hosts, and the claims that were refused. A claim is what a packet says about a
// host's place or address.
type HostStats struct {
	// Destinations is the number of hosts and prefixes that all switches have rules for in proactive mode.
	// It is 0 while rules are being written, or links are not known yet.
	Destinations int
	// Unsaved is the number of hosts with changes that are not stored yet.
	Unsaved int
	// Refused counts refused claims by reason: full, pinned, answered, crowded.
	Refused map[string]uint64
}

// HostStats returns the numbers of hosts and of refused claims about them.
func (n *Network) HostStats() HostStats {
	out := HostStats{Destinations: int(n.proactive.installedCount.Load()), Unsaved: n.hosts.UnsavedCount(), Refused: map[string]uint64{}}
	for why, count := range n.hosts.Refused() {
		out.Refused[why.String()] = count
	}
	return out
}

// HostByMAC returns the host with this MAC address in a VLAN. VLAN 0 means untagged packets.
func (n *Network) HostByMAC(m openflow.MAC, vlan uint16) (Host, bool) { return n.hosts.ByMAC(m, vlan) }

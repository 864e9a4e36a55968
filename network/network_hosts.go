package network

import (
	"net/netip"

	"github.com/sluice-net/sluice/openflow"
)

// Hosts lists every known host.
func (n *Network) Hosts() []Host { return n.hosts.All() }

// SetPinned replaces the hosts whose place never changes; see Config.Pinned. Hosts that
// are known elsewhere are forgotten.
func (n *Network) SetPinned(hosts map[netip.Addr]Pin) {
	n.dispatcher.hostChanges(n.hosts.SetPinned(hosts))
}

// HostByIP finds the host that has claimed an address.
func (n *Network) HostByIP(a netip.Addr) (Host, bool) { return n.hosts.ByIP(a) }

// HostStats counts hosts, and what became of what was said of them.
type HostStats struct {
	// Led is how many hosts, and prefixes, all switches have rules for, where packets are led by
	// destination: none while rules are being written, or links are not known yet.
	Led int
	// Unsaved is how many hosts have changed and are not kept for the next start as they are.
	Unsaved int
	// Refused is what was not believed, by why: full, pinned, answered where it was, crowded.
	Refused map[string]uint64
}

// HostStats counts hosts, and what became of what was said of them.
func (n *Network) HostStats() HostStats {
	out := HostStats{Led: int(n.proactive.installedCount.Load()), Unsaved: n.hosts.Unkept(), Refused: map[string]uint64{}}
	for why, count := range n.hosts.Refused() {
		out.Refused[why.String()] = count
	}
	return out
}

// HostByMAC finds the host with this address in a VLAN, zero for none.
func (n *Network) HostByMAC(m openflow.MAC, vlan uint16) (Host, bool) { return n.hosts.ByMAC(m, vlan) }

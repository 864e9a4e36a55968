package servicetest

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

var (
	_ kit.Network = (*Network)(nil)
	_ kit.Ledger  = (*Ledger)(nil)
)

// Network is a network whose switches can do everything, and in which nothing happens but
// what a test says. What a test needs otherwise it overrides. Its methods may be called
// concurrently.
type Network struct {
	// Sent takes what is sent by Send, and drops what it has no room for.
	Sent chan []byte

	mu     sync.Mutex
	top    *network.Topology
	hosts  map[netip.Addr]network.Host
	down   map[network.PortRef]bool
	deaf   map[openflow.DatapathID]bool
	queues map[network.PortRef]uint32

	virtual map[netip.Addr]network.Virtual
}

// NewNetwork returns one with switches and links, and hosts.
func NewNetwork(top *network.Topology, hosts ...network.Host) *Network {
	n := &Network{
		Sent: make(chan []byte, 1000), top: top, hosts: map[netip.Addr]network.Host{}, down: map[network.PortRef]bool{},
		deaf: map[openflow.DatapathID]bool{}, queues: map[network.PortRef]uint32{}, virtual: map[netip.Addr]network.Virtual{},
	}
	for _, h := range hosts {
		n.SetHost(h)
	}
	return n
}

// SetTopology changes switches and links.
func (n *Network) SetTopology(top *network.Topology) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.top = top
}

// SetHost has a host be where it says, with its addresses.
func (n *Network) SetHost(h network.Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, addr := range h.IPs {
		n.hosts[addr] = h
	}
}

// RemoveHost has nobody have an address.
func (n *Network) RemoveHost(addr netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.hosts, addr)
}

// SetDown has a port be without a link, or with one.
func (n *Network) SetDown(at network.PortRef, down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[at] = down
}

// SetDeaf has a switch not answer.
func (n *Network) SetDeaf(d openflow.DatapathID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf[d] = true
}

// ProbeQueue is what SetProbeQueue has set last.
func (n *Network) ProbeQueue(at network.PortRef) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.queues[at]
}

// Topology implements kit.Network, as do the following.
func (n *Network) Topology() *network.Topology {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.top
}

// Datapaths are the topology's.
func (n *Network) Datapaths() []openflow.DatapathID { return n.Topology().Switches }

// EdgeSwitches are all.
func (n *Network) EdgeSwitches() []openflow.DatapathID { return n.Topology().Switches }

// HostByIP finds one of the test's hosts.
func (n *Network) HostByIP(a netip.Addr) (network.Host, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.hosts[a]
	return h, ok
}

// HostByMAC finds one of the test's hosts.
func (n *Network) HostByMAC(m openflow.MAC, vlan uint16) (network.Host, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		if h.MAC == m && h.VLAN == vlan {
			return h, true
		}
	}
	return network.Host{}, false
}

// ResolveHost is HostByIP. A virtual address is ErrVirtual.
func (n *Network) ResolveHost(_ context.Context, a netip.Addr) (network.Host, error) {
	if _, virtual := n.Virtual(a); virtual {
		return network.Host{}, network.ErrVirtual
	}
	if h, ok := n.HostByIP(a); ok {
		return h, nil
	}
	return network.Host{}, network.ErrUnknownHost
}

// SetVirtual takes all addresses; one without a MAC address gets that of network.VirtualMAC.
func (n *Network) SetVirtual(service string, all map[netip.Addr]openflow.MAC) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.virtual, func(_ netip.Addr, v network.Virtual) bool { return v.Service == service })
	for a, mac := range all {
		n.virtual[a] = network.Virtual{Service: service, MAC: cmp.Or(mac, network.VirtualMAC(a))}
	}
	return nil
}

// Virtual finds one that SetVirtual has set.
func (n *Network) Virtual(a netip.Addr) (network.Virtual, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.virtual[a]
	return v, ok
}

// PlaceHost is SetHost.
func (n *Network) PlaceHost(m openflow.MAC, a netip.Addr, at network.PortRef) {
	n.SetHost(network.Host{MAC: m, IPs: []netip.Addr{a}, At: at})
}

// PortNumbers are not known.
func (n *Network) PortNumbers(openflow.DatapathID) ([]uint32, bool) { return nil, false }

// PortUp is as SetDown and SetDeaf say.
func (n *Network) PortUp(at network.PortRef) (up, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.down[at], !n.deaf[at.Switch]
}

// PortRole is not known.
func (n *Network) PortRole(network.PortRef) network.PortRole { return 0 }

// IsEdge is as the topology says.
func (n *Network) IsEdge(at network.PortRef) bool { return n.Topology().IsEdge(at) }

// Capacity is not known.
func (n *Network) Capacity(network.PortRef) uint64 { return 0 }

// SetProbeQueue is what ProbeQueue tells.
func (n *Network) SetProbeQueue(at network.PortRef, queue uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queues[at] = queue
}

// CanMatch is everything.
func (n *Network) CanMatch(openflow.DatapathID, openflow.Field) (can, known bool) { return true, true }

// CanSet is everything.
func (n *Network) CanSet(openflow.DatapathID, openflow.Field) bool { return true }

// ControlLatency is none.
func (n *Network) ControlLatency(openflow.DatapathID) time.Duration { return 0 }

// Alive is what is not deaf.
func (n *Network) Alive(_ context.Context, d openflow.DatapathID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.deaf[d]
}

// PortCounters returns none.
func (n *Network) PortCounters(context.Context, openflow.DatapathID) ([]stats.Sample, error) {
	return nil, nil
}

// MeterStats returns none.
func (n *Network) MeterStats(context.Context, openflow.DatapathID) ([]openflow.MeterStats, error) {
	return nil, nil
}

// QueueStats are none.
func (n *Network) QueueStats(context.Context, openflow.DatapathID) ([]openflow.QueueStats, error) {
	return nil, nil
}

// Send gives a frame to Sent.
func (n *Network) Send(_ network.PortRef, frame []byte) error {
	select {
	case n.Sent <- frame:
	default:
	}
	return nil
}

// Anchored says that nobody moves.
func (n *Network) Anchored(netip.Addr) (network.Anchor, bool) { return network.Anchor{}, false }

// Moving is nobody.
func (n *Network) Moving() network.Moving { return network.Moving{} }

// HasTables is true.
func (n *Network) HasTables(openflow.DatapathID) bool { return true }

package servicetest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
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

// Network is a network in which nothing happens unless a test causes it. Its switches support
// everything. A test may embed it and override methods. Its methods may be called concurrently.
type Network struct {
	// Sent receives the frames that Send is given. Frames are dropped when it is full.
	Sent chan []byte

	mu     sync.Mutex
	top    *network.Topology
	hosts  map[netip.Addr]network.Host
	down   map[network.PortRef]bool
	deaf   map[openflow.DatapathID]bool
	queues map[network.PortRef]uint32

	virtual map[netip.Addr]network.Virtual
}

// NewNetwork returns a network with the switches and links of a topology, and with hosts.
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

// SetTopology replaces the switches and links.
func (n *Network) SetTopology(top *network.Topology) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.top = top
}

// SetHost adds a host with its place and addresses, or moves it.
func (n *Network) SetHost(h network.Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, addr := range h.IPs {
		n.hosts[addr] = h
	}
}

// RemoveHost removes the host with an address.
func (n *Network) RemoveHost(addr netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.hosts, addr)
}

// SetDown sets whether a port is down.
func (n *Network) SetDown(at network.PortRef, down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[at] = down
}

// SetDeaf makes a switch stop answering.
func (n *Network) SetDeaf(d openflow.DatapathID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf[d] = true
}

// ProbeQueue returns the queue that SetProbeQueue has set last.
func (n *Network) ProbeQueue(at network.PortRef) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.queues[at]
}

// Topology implements kit.Network, as do the following methods.
func (n *Network) Topology() *network.Topology {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.top
}

// Datapaths returns the topology's switches.
func (n *Network) Datapaths() []openflow.DatapathID { return n.Topology().Switches }

// EdgeSwitches returns the topology's switches.
func (n *Network) EdgeSwitches() []openflow.DatapathID { return n.Topology().Switches }

// Hosts returns the test's hosts, in the order of their addresses.
func (n *Network) Hosts() []network.Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []network.Host
	for _, addr := range slices.SortedFunc(maps.Keys(n.hosts), netip.Addr.Compare) {
		h := n.hosts[addr]
		if !slices.ContainsFunc(out, func(x network.Host) bool { return x.MAC == h.MAC && x.VLAN == h.VLAN }) {
			out = append(out, h)
		}
	}
	return out
}

// HostByIP returns the test's host with an address.
func (n *Network) HostByIP(a netip.Addr) (network.Host, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.hosts[a]
	return h, ok
}

// HostByMAC returns the test's host with a MAC address and VLAN.
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

// ResolveHost returns the result of HostByIP. It returns ErrVirtual for a virtual address.
func (n *Network) ResolveHost(_ context.Context, a netip.Addr) (network.Host, error) {
	if _, virtual := n.Virtual(a); virtual {
		return network.Host{}, network.ErrVirtual
	}
	if h, ok := n.HostByIP(a); ok {
		return h, nil
	}
	return network.Host{}, network.ErrUnknownHost
}

// AddressInUse returns the MAC address of the result of HostByIP.
func (n *Network) AddressInUse(_ context.Context, a netip.Addr) (openflow.MAC, bool) {
	h, ok := n.HostByIP(a)
	return h.MAC, ok
}

// SetVirtual sets a service's virtual addresses. An address without a MAC address gets that of
// network.VirtualMAC.
func (n *Network) SetVirtual(service string, all map[netip.Addr]openflow.MAC) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.virtual, func(_ netip.Addr, v network.Virtual) bool { return v.Service == service })
	for a, mac := range all {
		n.virtual[a] = network.Virtual{Service: service, MAC: cmp.Or(mac, network.VirtualMAC(a))}
	}
	return nil
}

// Virtual returns an address that SetVirtual has set.
func (n *Network) Virtual(a netip.Addr) (network.Virtual, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.virtual[a]
	return v, ok
}

// PlaceHost calls SetHost.
func (n *Network) PlaceHost(m openflow.MAC, a netip.Addr, at network.PortRef) {
	n.SetHost(network.Host{MAC: m, IPs: []netip.Addr{a}, At: at})
}

// PortNumbers reports that a switch's ports are not known.
func (n *Network) PortNumbers(openflow.DatapathID) ([]uint32, bool) { return nil, false }

// PortUp returns what SetDown and SetDeaf have set.
func (n *Network) PortUp(at network.PortRef) (up, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.down[at], !n.deaf[at.Switch]
}

// PortRole returns no role.
func (n *Network) PortRole(network.PortRef) network.PortRole { return 0 }

// IsEdge reports whether the topology has no link at a port.
func (n *Network) IsEdge(at network.PortRef) bool { return n.Topology().IsEdge(at) }

// IsSettling reports that no port is settling.
func (n *Network) IsSettling(network.PortRef) bool { return false }

// Capacity returns zero, which means that the capacity is not known.
func (n *Network) Capacity(network.PortRef) uint64 { return 0 }

// SetProbeQueue sets the queue that ProbeQueue returns.
func (n *Network) SetProbeQueue(at network.PortRef, queue uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queues[at] = queue
}

// CanMatch returns true for all fields.
func (n *Network) CanMatch(openflow.DatapathID, openflow.Field) (can, known bool) { return true, true }

// CanSet returns true for all fields.
func (n *Network) CanSet(openflow.DatapathID, openflow.Field) bool { return true }

// ControlLatency returns zero.
func (n *Network) ControlLatency(openflow.DatapathID) time.Duration { return 0 }

// Alive reports whether the switch answers, which SetDeaf changes.
func (n *Network) Alive(_ context.Context, d openflow.DatapathID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.deaf[d]
}

// PortCounters returns no counters.
func (n *Network) PortCounters(context.Context, openflow.DatapathID) ([]stats.Sample, error) {
	return nil, nil
}

// MeterStats returns no counters.
func (n *Network) MeterStats(context.Context, openflow.DatapathID) ([]openflow.MeterStats, error) {
	return nil, nil
}

// QueueStats returns no counters.
func (n *Network) QueueStats(context.Context, openflow.DatapathID) ([]openflow.QueueStats, error) {
	return nil, nil
}

// Send sends a frame to Sent.
func (n *Network) Send(_ network.PortRef, frame []byte) error {
	select {
	case n.Sent <- bytes.Clone(frame): // the caller may use its frame again
	default:
	}
	return nil
}

// Anchored reports that no host is anchored.
func (n *Network) Anchored(netip.Addr) (network.Anchor, bool) { return network.Anchor{}, false }

// Moving returns no hosts.
func (n *Network) Moving() network.Moving { return network.Moving{} }

// HasTables returns true.
func (n *Network) HasTables(openflow.DatapathID) bool { return true }

package kit

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// Network lists the methods of *network.Network that services use. Those for rules are in Ledger.
type Network interface {
	Topology() *network.Topology
	// Datapaths returns the connected switches, and EdgeSwitches those of them that may have
	// hosts.
	Datapaths() []openflow.DatapathID
	EdgeSwitches() []openflow.DatapathID

	// Hosts returns every known host.
	Hosts() []network.Host
	HostByIP(netip.Addr) (network.Host, bool)
	HostByMAC(mac openflow.MAC, vlan uint16) (network.Host, bool)
	// ResolveHost finds a host. It asks the network for the host if its place is not known.
	ResolveHost(context.Context, netip.Addr) (network.Host, error)
	// AddressInUse asks the network whether a host answers for an address, and returns its MAC
	// address. It does not rely on the host table.
	AddressInUse(context.Context, netip.Addr) (mac openflow.MAC, used bool)
	// PlaceHost records the MAC address, IP address and port of a host that a service manages.
	PlaceHost(openflow.MAC, netip.Addr, network.PortRef)
	// SetVirtual replaces the virtual addresses of a service, which belong to no host. Virtual
	// finds a virtual address.
	SetVirtual(service string, all map[netip.Addr]openflow.MAC) error
	Virtual(netip.Addr) (network.Virtual, bool)
	// Anchored returns the anchor of a moving host that a service manages.
	Anchored(netip.Addr) (network.Anchor, bool)
	// Moving describes the hosts that may move.
	Moving() network.Moving

	// The following methods describe a port.
	PortNumbers(openflow.DatapathID) (ports []uint32, ok bool)
	PortUp(network.PortRef) (up, known bool)
	PortRole(network.PortRef) network.PortRole
	IsEdge(network.PortRef) bool
	IsSettling(network.PortRef) bool
	Capacity(network.PortRef) uint64
	SetProbeQueue(at network.PortRef, queue uint32)

	// The following methods describe a switch, or send requests to it.
	CanMatch(openflow.DatapathID, openflow.Field) (can, known bool)
	CanSet(openflow.DatapathID, openflow.Field) bool
	// HasTables reports whether the switch has a table for each table of the pipeline.
	HasTables(openflow.DatapathID) bool
	ControlLatency(openflow.DatapathID) time.Duration
	Alive(context.Context, openflow.DatapathID) bool
	// PortCounters, MeterStats and QueueStats read the counters of all ports, meters and queues of
	// a switch.
	PortCounters(context.Context, openflow.DatapathID) ([]stats.Sample, error)
	MeterStats(context.Context, openflow.DatapathID) ([]openflow.MeterStats, error)
	QueueStats(context.Context, openflow.DatapathID) ([]openflow.QueueStats, error)
	Send(at network.PortRef, frame []byte) error
}

// Ledger is a service's access to the ledger of rules. *network.Owner implements it.
type Ledger interface {
	Apply(context.Context, string, network.Program, network.ApplyOptions) error
	Remove(context.Context, string) error
	EverySwitch(context.Context, string, func(openflow.DatapathID) network.Program) map[openflow.DatapathID]error
	ReadCounters(context.Context, openflow.DatapathID) error
	GroupStats(context.Context, openflow.DatapathID) ([]openflow.GroupStats, error)
	Rules(string) []network.InstalledRule
	Shadowed(network.Stage, uint16, [][]openflow.Match) [][]rule.Shadowing
	Ready()
}

var (
	_ Network = (*network.Network)(nil)
	_ Ledger  = (*network.Owner)(nil)
)

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

// Network is what services need of the network besides their rules; a *network.Network.
type Network interface {
	Topology() *network.Topology
	// Datapaths are the switches that are up, EdgeSwitches those of them behind which
	// hosts may stand.
	Datapaths() []openflow.DatapathID
	EdgeSwitches() []openflow.DatapathID

	HostByIP(netip.Addr) (network.Host, bool)
	HostByMAC(mac openflow.MAC, vlan uint16) (network.Host, bool)
	// ResolveHost finds where a host stands, by asking for it if need be.
	ResolveHost(context.Context, netip.Addr) (network.Host, error)
	// PlaceHost tells where a host is now, by which MAC address and with which address.
	PlaceHost(openflow.MAC, netip.Addr, network.PortRef)
	// SetVirtual replaces the addresses that a service has and no host, and Virtual finds one.
	SetVirtual(service string, all map[netip.Addr]openflow.MAC) error
	Virtual(netip.Addr) (network.Virtual, bool)
	// Anchored tells where a host is anchored that moves, and is led by a service.
	Anchored(netip.Addr) (network.Anchor, bool)
	// Moving says which hosts may move.
	Moving() network.Moving

	// What is known of a port.
	PortNumbers(openflow.DatapathID) (ports []uint32, ok bool)
	PortUp(network.PortRef) (up, known bool)
	PortRole(network.PortRef) network.PortRole
	IsEdge(network.PortRef) bool
	Capacity(network.PortRef) uint64
	SetProbeQueue(at network.PortRef, queue uint32)

	// What is known of a switch, and asked of it.
	CanMatch(openflow.DatapathID, openflow.Field) (can, known bool)
	CanSet(openflow.DatapathID, openflow.Field) bool
	// HasTables says whether the pipeline's tables are tables of its own there.
	HasTables(openflow.DatapathID) bool
	ControlLatency(openflow.DatapathID) time.Duration
	Alive(context.Context, openflow.DatapathID) bool
	// PortCounters, MeterStats and QueueStats read what all ports, meters and queues of a
	// switch have counted.
	PortCounters(context.Context, openflow.DatapathID) ([]stats.Sample, error)
	MeterStats(context.Context, openflow.DatapathID) ([]openflow.MeterStats, error)
	QueueStats(context.Context, openflow.DatapathID) ([]openflow.QueueStats, error)
	Send(at network.PortRef, frame []byte) error
}

// Ledger is a service's part of the ledger of rules; a *network.Owner.
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

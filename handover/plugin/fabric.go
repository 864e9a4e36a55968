package plugin

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Fabric is what the service needs of the network besides its rules.
type Fabric interface {
	Topology() *topology.Topology
	// Switches are the connected switches, ascending.
	Switches() []openflow.DatapathID
	// PortUp says whether the port is there and its link is up.
	PortUp(network.PortRef) bool
	// ControlLatency is the measured one-way latency to a switch, zero while unknown.
	ControlLatency(openflow.DatapathID) time.Duration
	// Send makes a switch send a frame out of a port. It does not wait.
	Send(at network.PortRef, frame []byte) error
	// Uplink says whether a port leads, by its role, to networks beyond this one.
	Uplink(network.PortRef) bool
	// Place tells where a device is now, by which MAC address and with which address.
	Place(openflow.MAC, netip.Addr, network.PortRef)
}

// Rules is the service's part of the ledger; a *network.Owner.
type Rules interface {
	Apply(context.Context, string, rule.Program, rule.ApplyOptions) error
	Remove(context.Context, string) error
	EverySwitch(context.Context, string, func(openflow.DatapathID) rule.Program) map[openflow.DatapathID]error
	Ready()
}

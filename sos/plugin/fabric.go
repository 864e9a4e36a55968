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
	HostByIP(netip.Addr) (network.Host, bool)
	HostByMAC(openflow.MAC, uint16) (network.Host, bool)
	ResolveHost(context.Context, netip.Addr) (network.Host, error)
	// CanSet and CanMatch say what a switch's tables can do.
	CanSet(openflow.DatapathID, openflow.Field) bool
	CanMatch(openflow.DatapathID, openflow.Field) bool
	// EdgeSwitches are the connected switches behind which hosts may stand.
	EdgeSwitches() []openflow.DatapathID
	// PortUp says whether a port's link is up, as far as its switch has told; it
	// is false for known when the switch is not connected.
	PortUp(network.PortRef) (up, known bool)
	// Alive asks a switch for a sign of life.
	Alive(context.Context, openflow.DatapathID) bool
	// Send makes a switch send a frame out of a port.
	Send(openflow.DatapathID, uint32, []byte) error
}

// Rules is the service's part of the ledger; a *network.Owner.
type Rules interface {
	Apply(context.Context, string, rule.Program, rule.ApplyOptions) error
	Remove(context.Context, string) error
	Overruled(rule.Stage, uint16, [][]openflow.Match) [][]rule.Overruling
	Ready()
}

// Held is a packet that waits for a decision; a *network.Held.
type Held interface {
	// Output sends it on by actions.
	Output([]openflow.Action) error
	// Forward hands it to default forwarding.
	Forward() error
	// Drop gives it up.
	Drop()
}

// punted is a packet that a switch has sent up.
type punted interface {
	Hold(time.Duration) (Held, error)
	Output([]openflow.Action) error
}

// packetIn is a *network.PacketIn.
type packetIn struct{ *network.PacketIn }

func (p packetIn) Hold(d time.Duration) (Held, error) { return p.PacketIn.Hold(d) }

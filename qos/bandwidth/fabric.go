package bandwidth

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
)

// Fabric is what the service needs of the network besides its rules.
type Fabric interface {
	Topology() *network.Topology
	// IsEdge says whether hosts may stand behind a port, PortUp whether it is up.
	IsEdge(network.PortRef) bool
	PortUp(network.PortRef) bool
	// SeesTCPFlags says whether a switch's rules can match TCP's flags. One that is not
	// connected is taken to be able to: its rules were once accepted.
	SeesTCPFlags(openflow.DatapathID) bool
	HostByMAC(openflow.MAC, uint16) (network.Host, bool)
	// ResolveHost asks the network where a host is that has not been heard yet.
	ResolveHost(context.Context, netip.Addr) (network.Host, error)
	// Use is what is known of the traffic out of a port.
	Use(network.PortRef) reserve.Use
}

// Rules is the service's part of the ledger; a *network.Owner.
type Rules interface {
	Apply(context.Context, string, network.Program, network.ApplyOptions) error
	Remove(context.Context, string) error
	EverySwitch(context.Context, string, func(openflow.DatapathID) network.Program) map[openflow.DatapathID]error
	ReadCounters(context.Context, openflow.DatapathID) error
	Rules(string) []network.InstalledRule
	Overruled(network.Stage, uint16, [][]openflow.Match) [][]rule.Overruling
	Ready()
}

// Held is a packet that waits for a decision; a *network.Held.
type Held interface {
	// Release sends it through its switch's flow table.
	Release() error
	// Forward hands it to default forwarding.
	Forward() error
}

// NewFabric lets the service work with a network.
func NewFabric(n *network.Network) Fabric { return &fabric{n} }

type fabric struct{ *network.Network }

func (f *fabric) PortUp(at network.PortRef) bool {
	sw, ok := f.Switch(at.Switch)
	if !ok {
		return false
	}
	p, ok := sw.Port(at.Port)
	return ok && p.Up()
}

func (f *fabric) SeesTCPFlags(d openflow.DatapathID) bool {
	sw, ok := f.Switch(d)
	return !ok || sw.Capabilities().CanMatch(openflow.FieldTCPFlags)
}

func (f *fabric) Use(at network.PortRef) reserve.Use {
	if l, ok := f.Topology().LinkFrom(at); ok {
		return reserve.Use{Capacity: l.Capacity, Used: l.Used}
	}
	u := reserve.Use{Capacity: f.Capacity(at)}
	if r, ok := f.PortRate(at); ok && time.Since(r.At) < staleRate {
		u.Used = uint64(r.TxBits)
	}
	return u
}

// staleRate is the age at which the rate of a port says nothing any more.
const staleRate = time.Minute

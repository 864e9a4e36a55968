package latency

import (
	"context"
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
)

// Fabric is what the service needs of the network besides its rules.
type Fabric interface {
	Topology() *topology.Topology
	// Locate finds where a host stands, by asking for it if need be.
	Locate(ctx context.Context, e End) (topology.Host, error)
	// Known is where it was seen last.
	Known(e End) (topology.Host, bool)
	// Switches are those that are connected.
	Switches() []openflow.DatapathID
	// Ports are the ports of a connected switch, also those that are down.
	Ports(d openflow.DatapathID) (ports []uint32, ok bool)
	// Capacity is the speed of what leaves by a port, in bit/s; zero while unknown.
	Capacity(at topology.PortRef) uint64
	// Address is where a connected switch connects from; not valid for a socket
	// without one.
	Address(d openflow.DatapathID) netip.Addr
	// SetProbeQueue says in which queue of a port probes of its link are to wait, 0 for
	// that of traffic without a class.
	SetProbeQueue(at topology.PortRef, queue uint32)
	QueueStats(ctx context.Context, d openflow.DatapathID) ([]openflow.QueueStats, error)
}

// Rules is the service's part of the ledger; a *network.Owner.
type Rules interface {
	Apply(context.Context, string, rule.Program, rule.ApplyOptions) error
	Remove(context.Context, string) error
	Rules(key string) []rule.Installed
	Overruled(rule.Stage, uint16, [][]openflow.Match) [][]rule.Overruling
	ReadCounters(context.Context, openflow.DatapathID) error
	Ready()
}

// Critical are flows that are promised bandwidth by others than this service. Rules of
// classes win over theirs.
type Critical interface {
	// Within lists the promises to those of which all packets are among some.
	Within([]openflow.Match) []reserve.Key
	// GiveWay ends those: a class carries them. to says which.
	GiveWay(m []openflow.Match, to string)
}

// NewFabric is the fabric of a real network.
func NewFabric(n *network.Network) Fabric { return fabric{n} }

type fabric struct{ n *network.Network }

func (f fabric) Topology() *topology.Topology { return f.n.Topology() }

func (f fabric) Locate(ctx context.Context, e End) (topology.Host, error) {
	if e.IP.IsValid() {
		return f.n.ResolveHost(ctx, e.IP)
	}
	if h, ok := f.Known(e); ok {
		return h, nil
	}
	return topology.Host{}, network.ErrUnknownHost
}

func (f fabric) Known(e End) (topology.Host, bool) {
	if e.IP.IsValid() {
		return f.n.HostByIP(e.IP)
	}
	return f.n.HostByMAC(e.MAC, e.VLAN)
}

func (f fabric) Switches() []openflow.DatapathID {
	var out []openflow.DatapathID
	for _, s := range f.n.Switches() {
		out = append(out, s.DPID())
	}
	return out
}

func (f fabric) Ports(d openflow.DatapathID) ([]uint32, bool) {
	s, ok := f.n.Switch(d)
	if !ok {
		return nil, false
	}
	var out []uint32
	for _, p := range s.Ports() {
		if p.Number <= openflow.PortMax {
			out = append(out, p.Number)
		}
	}
	return out, true
}

func (f fabric) Capacity(at topology.PortRef) uint64 { return f.n.Capacity(at) }

func (f fabric) SetProbeQueue(at topology.PortRef, queue uint32) { f.n.SetProbeQueue(at, queue) }

func (f fabric) Address(d openflow.DatapathID) netip.Addr {
	s, ok := f.n.Switch(d)
	if !ok || s.RemoteAddr() == nil {
		return netip.Addr{}
	}
	a, err := netip.ParseAddrPort(s.RemoteAddr().String())
	if err != nil {
		return netip.Addr{} // a socket of the machine itself
	}
	return a.Addr().Unmap()
}

func (f fabric) QueueStats(ctx context.Context, d openflow.DatapathID) ([]openflow.QueueStats, error) {
	s, ok := f.n.Switch(d)
	if !ok {
		return nil, network.ErrSwitchDown
	}
	return s.QueueStats(ctx)
}

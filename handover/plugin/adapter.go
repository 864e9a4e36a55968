package plugin

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// NewFabric lets the service work with a network.
func NewFabric(n *network.Network) Fabric { return &fabric{n} }

type fabric struct{ n *network.Network }

func (f *fabric) Topology() *network.Topology { return f.n.Topology() }

func (f *fabric) Switches() []openflow.DatapathID {
	all := f.n.Switches()
	out := make([]openflow.DatapathID, len(all))
	for i, sw := range all {
		out[i] = sw.DPID()
	}
	return out
}

func (f *fabric) PortUp(at network.PortRef) bool {
	sw, ok := f.n.Switch(at.Switch)
	if !ok {
		return false
	}
	p, ok := sw.Port(at.Port)
	return ok && p.Up()
}

func (f *fabric) ControlLatency(d openflow.DatapathID) time.Duration {
	sw, ok := f.n.Switch(d)
	if !ok {
		return 0
	}
	return sw.ControlLatency()
}

func (f *fabric) Uplink(at network.PortRef) bool { return f.n.PortRole(at) == network.PortUplink }

func (f *fabric) Place(mac openflow.MAC, ip netip.Addr, at network.PortRef) {
	f.n.PlaceHost(mac, ip, at)
}

func (f *fabric) Send(at network.PortRef, frame []byte) error {
	sw, ok := f.n.Switch(at.Switch)
	if !ok {
		return fmt.Errorf("switch %v: %w", at.Switch, network.ErrSwitchDown)
	}
	return sw.PacketOut(openflow.PortController, []openflow.Action{openflow.Output(at.Port)}, frame)
}

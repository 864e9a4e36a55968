package plugin

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// NewFabric lets the service work with a network.
func NewFabric(n *network.Network) Fabric { return &fabric{n} }

type fabric struct{ *network.Network }

// CanSet says whether a switch's rules can write a field. A switch that is not
// connected is taken to be able to: its rules were once accepted.
func (f *fabric) CanSet(d openflow.DatapathID, field openflow.Field) bool {
	sw, ok := f.Switch(d)
	return !ok || sw.Capabilities().CanSet(field)
}

// CanMatch says whether a switch's rules can match a field.
func (f *fabric) CanMatch(d openflow.DatapathID, field openflow.Field) bool {
	sw, ok := f.Switch(d)
	return ok && sw.Capabilities().CanMatch(field)
}

// EdgeSwitches lists the switches with a port that leads to no other switch.
func (f *fabric) EdgeSwitches() []openflow.DatapathID {
	top := f.Topology()
	var out []openflow.DatapathID
	for _, sw := range f.Switches() {
		for _, p := range sw.Ports() {
			if p.Number <= openflow.PortMax && top.IsEdge(network.PortRef{Switch: sw.DPID(), Port: p.Number}) {
				out = append(out, sw.DPID())
				break
			}
		}
	}
	return out
}

// PortUp says whether a port's link is up.
func (f *fabric) PortUp(at network.PortRef) (up, known bool) {
	sw, ok := f.Switch(at.Switch)
	if !ok {
		return false, false
	}
	p, ok := sw.Port(at.Port)
	return ok && p.Up(), true
}

// Alive asks a switch for a sign of life.
func (f *fabric) Alive(ctx context.Context, d openflow.DatapathID) bool {
	sw, ok := f.Switch(d)
	return ok && sw.Alive(ctx)
}

// Send makes a switch send a frame out of a port.
func (f *fabric) Send(d openflow.DatapathID, port uint32, frame []byte) error {
	sw, ok := f.Switch(d)
	if !ok {
		return fmt.Errorf("switch %v: %w", d, network.ErrSwitchDown)
	}
	return sw.PacketOut(openflow.PortController, []openflow.Action{openflow.Output(port)}, frame)
}

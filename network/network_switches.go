package network

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// Datapaths lists the switches that are up, in order.
func (n *Network) Datapaths() []openflow.DatapathID {
	var out []openflow.DatapathID
	for _, s := range n.Switches() {
		out = append(out, s.DPID())
	}
	return out
}

// EdgeSwitches lists the switches with a port that leads to no other switch.
func (n *Network) EdgeSwitches() []openflow.DatapathID {
	t := n.Topology()
	var out []openflow.DatapathID
	for _, s := range n.Switches() {
		for _, p := range s.Ports() {
			if p.Number <= openflow.PortMax && t.IsEdge(PortRef{Switch: s.DPID(), Port: p.Number}) {
				out = append(out, s.DPID())
				break
			}
		}
	}
	return out
}

// PortNumbers lists the ports of a switch that is up, also those that are down.
func (n *Network) PortNumbers(d openflow.DatapathID) ([]uint32, bool) {
	s, ok := n.Switch(d)
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

// Address is where a switch connects from. It is not valid for one that is not up, or that
// uses a socket of the machine itself.
func (n *Network) Address(d openflow.DatapathID) netip.Addr {
	s, ok := n.Switch(d)
	if !ok || s.RemoteAddr() == nil {
		return netip.Addr{}
	}
	a, err := netip.ParseAddrPort(s.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

// PortUp says whether a port is there and up. It is not known while its switch is not.
func (n *Network) PortUp(at PortRef) (up, known bool) { return n.switches.portUp(at) }

// CanMatch says whether a switch's rules can match a field. It is not known while the
// switch is not up.
func (n *Network) CanMatch(d openflow.DatapathID, f openflow.Field) (can, known bool) {
	s, ok := n.Switch(d)
	return ok && s.Capabilities().CanMatch(f), ok
}

// CanSet says whether a switch's rules can write a field. One that is not up is taken to be
// able to: its rules were once accepted.
func (n *Network) CanSet(d openflow.DatapathID, f openflow.Field) bool {
	s, ok := n.Switch(d)
	return !ok || s.Capabilities().CanSet(f)
}

// Alive asks a switch for a sign of life.
func (n *Network) Alive(ctx context.Context, d openflow.DatapathID) bool {
	s, ok := n.Switch(d)
	return ok && s.Alive(ctx)
}

// ControlLatency is the usual one-way latency of the connection to a switch, zero while it
// is unknown.
func (n *Network) ControlLatency(d openflow.DatapathID) time.Duration {
	s, ok := n.Switch(d)
	if !ok {
		return 0
	}
	return s.ControlLatency()
}

// Send has a switch send a frame out of a port.
func (n *Network) Send(at PortRef, frame []byte) error {
	s, err := n.switches.mustBeUp(at.Switch)
	if err != nil {
		return err
	}
	return s.PacketOut(openflow.PortController, []openflow.Action{openflow.Output(at.Port)}, frame)
}

// PortCounters reads the counters of all ports of a switch.
func (n *Network) PortCounters(ctx context.Context, d openflow.DatapathID) ([]stats.Sample, error) {
	s, err := n.switches.mustBeUp(d)
	if err != nil {
		return nil, err
	}
	return s.portCounters(ctx)
}

// MeterStats reads what the meters of a switch have counted, whoever owns them.
func (n *Network) MeterStats(ctx context.Context, d openflow.DatapathID) ([]openflow.MeterStats, error) {
	s, err := n.switches.mustBeUp(d)
	if err != nil {
		return nil, err
	}
	meters, done, err := ask[openflow.MeterStatsReply](ctx, s.ch, &openflow.MeterStatsRequest{Meter: openflow.MeterAll})
	if err != nil {
		return nil, err
	}
	defer done()
	var out []openflow.MeterStats
	for m := range meters {
		out = append(out, *m)
	}
	return out, nil
}

// QueueStats reads what the queues of a switch's ports have counted.
func (n *Network) QueueStats(ctx context.Context, d openflow.DatapathID) ([]openflow.QueueStats, error) {
	s, err := n.switches.mustBeUp(d)
	if err != nil {
		return nil, err
	}
	return s.QueueStats(ctx)
}

// HasTables reports whether the pipeline has tables of its own in a switch: rules can have
// packets go on to a later one. It is false for a switch that is not there.
func (n *Network) HasTables(d openflow.DatapathID) bool {
	s, ok := n.Switch(d)
	return ok && s.layout.Tables()
}

// Capacity is the speed of what leaves by a port, in bits per second: that of the
// configuration, or the port's own. It is zero while unknown.
func (n *Network) Capacity(at PortRef) uint64 {
	if c, ok := n.cfg.Capacities[at]; ok {
		return c
	}
	if s, ok := n.Switch(at.Switch); ok {
		p, _ := s.Port(at.Port)
		return uint64(p.CurrSpeed) * 1000
	}
	return 0
}

// IsEdge reports whether hosts may stand behind a port: it is up and has shown
// no sign of a link to another switch.
func (n *Network) IsEdge(at PortRef) bool { return n.links.IsEdge(at) }

package network

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// Datapaths returns the switches that are up, in order.
func (n *Network) Datapaths() []openflow.DatapathID {
	var out []openflow.DatapathID
	for _, s := range n.Switches() {
		out = append(out, s.DPID())
	}
	return out
}

// EdgeSwitches returns the switches with a port that leads to no other switch.
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

// PortNumbers returns the ports of a switch that is up, including those that are down.
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

// Address returns the address that a switch connects from. It is not valid if the switch is not
// up, or connects over a Unix socket.
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

// PortUp reports whether a port exists and is up, and whether its state is known: it is unknown
// while the port's switch is down.
func (n *Network) PortUp(at PortRef) (up, known bool) { return n.switches.portUp(at) }

// CanMatch reports whether a switch's rules can match a field, and whether the answer is known: it
// is unknown while the switch is down.
func (n *Network) CanMatch(d openflow.DatapathID, f openflow.Field) (can, known bool) {
	s, ok := n.Switch(d)
	return ok && s.Capabilities().CanMatch(f), ok
}

// CanSet reports whether a switch's rules can write a field. A switch that is down is assumed to
// be able to, because it accepted its rules before.
func (n *Network) CanSet(d openflow.DatapathID, f openflow.Field) bool {
	s, ok := n.Switch(d)
	return !ok || s.Capabilities().CanSet(f)
}

// Alive reports whether a switch answers an echo request.
func (n *Network) Alive(ctx context.Context, d openflow.DatapathID) bool {
	s, ok := n.Switch(d)
	return ok && s.Alive(ctx)
}

// ControlLatency returns the typical one-way latency of the connection to a switch, or zero while
// it is unknown.
func (n *Network) ControlLatency(d openflow.DatapathID) time.Duration {
	s, ok := n.Switch(d)
	if !ok {
		return 0
	}
	return s.ControlLatency()
}

// Send makes a switch send a frame out of a port.
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

// MeterStats reads the counters of a switch's meters, whoever owns them.
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

// QueueStats reads the counters of the queues of a switch's ports.
func (n *Network) QueueStats(ctx context.Context, d openflow.DatapathID) ([]openflow.QueueStats, error) {
	s, err := n.switches.mustBeUp(d)
	if err != nil {
		return nil, err
	}
	return s.QueueStats(ctx)
}

// HasTables reports whether a switch has the pipeline's separate tables, so that rules can send
// packets on to a later one. It is false for a switch that is not up.
func (n *Network) HasTables(d openflow.DatapathID) bool {
	s, ok := n.Switch(d)
	return ok && s.layout.Tables()
}

// Capacity returns the capacity of a port in bits per second: the configured one, or the port's
// speed. It is zero while unknown.
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

// IsEdge reports whether hosts may be behind a port: it is up and has shown no sign of a link to
// another switch.
func (n *Network) IsEdge(at PortRef) bool { return n.links.IsEdge(at) }

// IsSettling reports whether a port came up a moment ago and has shown no sign of a link since. It
// becomes an edge port unless a probe from another switch arrives there.
func (n *Network) IsSettling(at PortRef) bool { return n.links.IsSettling(at) }

package critical

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

// A flow of a mobile host follows that host's own rules, and has no path of its own. Its bandwidth
// is promised on the host's present path between the border and the host's place, and anew after
// each move; otherwise the flow is reported as not accepted. All packets of the flow pass the
// border. There, the flow is recognised, and limited to its promise.

// identify returns the header of a packet at a switch, and the address of its mobile host if the
// switch is a border of that host. At other switches, or if both hosts are mobile, it returns no
// device. The header is the one by which the border knows the flow, even if the host is connected
// to that switch and uses another MAC address there.
func (p *planner) identify(headers *packet.Headers, at openflow.DatapathID) (h match.Header, device netip.Addr, ok bool) {
	plain, ok := match.HeaderOf(headers)
	h = plain
	for _, end := range []struct {
		addr netip.Addr
		mac  *openflow.MAC
	}{{h.Src, &h.EthSrc}, {h.Dst, &h.EthDst}} {
		anchor, moves := p.Network.Anchored(end.addr)
		if _, border := anchor.Border(at); !moves || !border {
			continue
		}
		if device.IsValid() {
			return plain, netip.Addr{}, ok
		}
		device, *end.mac = end.addr, anchor.MAC
	}
	return h, device, ok
}

// mobilePath returns the present path of a flow with a mobile host, from the port where the flow
// enters to the port where it leaves. It returns false if no service places the host.
func (p *planner) mobilePath(f *flow) ([]network.Hop, bool) {
	a, led := p.Network.Anchored(f.Device)
	if f.Device == f.Header.Src {
		return kit.Reversed(a.Path), led && len(a.Path) > 0
	}
	return a.Path, led && len(a.Path) > 0
}

// borderHop returns the hop of a path that is at the border.
func (f *flow) borderHop(hops []network.Hop) network.Hop {
	if f.Device == f.Header.Src {
		return hops[len(hops)-1]
	}
	return hops[0]
}

// borderRules returns the rules of a mobile host's flow. At each border, they pass the flow's
// packets on to the host's own rules. At the border of the host's present path, they also apply the
// meters, and the switch reports when the flow has been silent.
func (w *writer) borderRules(f *flow, hops []network.Hop, meter func(network.PortRef) uint32) network.Program {
	hop := f.borderHop(hops)
	borders := []openflow.DatapathID{hop.Switch}
	if a, led := w.Network.Anchored(f.Device); led {
		for _, at := range a.Borders {
			if !slices.Contains(borders, at.Switch) {
				borders = append(borders, at.Switch)
			}
		}
	}
	var p network.Program
	for _, d := range borders {
		add := func(h match.Header, out uint32, idle time.Duration, flags ...uint16) {
			r := network.Rule{
				Switch: d, Stage: network.StageSelect, Offset: rule.SelectCriticalFlow, Match: h.MatchIP(), Goto: rule.TableRoute,
				Idle: idle, NotifyRemoved: idle > 0,
			}
			if d == hop.Switch {
				r.Meter = meter(network.PortRef{Switch: d, Port: out})
			}
			p.Rules = append(p.Rules, r)
			if h.Proto != packet.ProtoTCP || !w.matchesTCPFlags(d) {
				return
			}
			r.Offset, r.Idle, r.NotifyRemoved = rule.SelectCriticalCopy, 0, false
			r.Actions = []openflow.Action{openflow.OutputController(copyBytes)}
			for _, flag := range flags {
				r.Match = h.MatchIP(openflow.TCPFlags(flag, flag))
				p.Rules = append(p.Rules, r)
			}
		}
		idle := f.Idle
		if d != hop.Switch {
			idle = 0
		}
		add(f.Header, hop.Out, idle, packet.SYN, packet.FIN, packet.RST)
		add(f.Header.Reverse(), hop.In, 0, packet.FIN, packet.RST)
	}
	return p
}

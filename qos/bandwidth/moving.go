package bandwidth

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/match"
	"github.com/sluice-net/sluice/qos/reserve"
)

// A flow of a host that moves goes where that host's own rules lead it. It has no path of
// its own: what is promised to it is promised on the host's present way between the border
// and its place, anew at each place, or it is told that it cannot be. At the border, which
// all its packets pass, it is recognised, and held to what it was promised.

// identify reads the header of a packet at a switch, and finds out which host of it moves, if
// that is a border of it: for all other packets, and if both hosts move, nobody does. The
// header is the one by which a flow is known at the border: also where its host stands there
// itself, and uses another address.
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

// way is the present way of a flow whose host moves, from where it comes in to where it
// leaves. It is false if nobody leads the host.
func (p *planner) way(f *flow) ([]network.Hop, bool) {
	a, led := p.Network.Anchored(f.Device)
	if f.Device == f.Header.Src {
		return reserve.Back(a.Way), led && len(a.Way) > 0
	}
	return a.Way, led && len(a.Way) > 0
}

// border is the hop of a way that is at the border.
func (f *flow) border(hops []network.Hop) network.Hop {
	if f.Device == f.Header.Src {
		return hops[len(hops)-1]
	}
	return hops[0]
}

// borderProgram are the rules of a flow of a host that moves: at each border it goes on to
// the host's own rules. Where its way leads it passes the meters, and it is noticed there
// when it is over.
func (w *writer) borderProgram(f *flow, hops []network.Hop, meter func(network.PortRef) uint32) network.Program {
	hop := f.border(hops)
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
			if h.Proto != packet.ProtoTCP || !w.seesTCPFlags(d) {
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

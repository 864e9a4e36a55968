package critical

import (
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/match"
)

// FlowRules returns the rules, along a path and without meters, of the flow that a packet belongs
// to. It returns false if the packet belongs to none. sees reports whether a switch matches TCP
// flags.
func FlowRules(h *packet.Headers, path network.Path, idle time.Duration, sees func(openflow.DatapathID) bool) (network.Program, bool) {
	f, ok := match.HeaderOf(h)
	if !ok {
		return network.Program{}, false
	}
	return pathRules(f, path.Hops, idle, func(network.PortRef) uint32 { return 0 }, sees), true
}

// pathRules returns a flow's rules along a path, in both directions. The rule where the flow enters
// makes the switch report when the flow has been silent. meter returns the meter that traffic out
// of a port has to pass, zero for none. sees reports whether a switch matches TCP flags.
func pathRules(h match.Header, hops []network.Hop, idle time.Duration, meter func(network.PortRef) uint32, sees func(openflow.DatapathID) bool) network.Program {
	led := flowpath.Forwarding{Header: h, Hops: hops, Stage: network.StageWay, Offset: rule.WayCriticalFlow, Idle: idle, Meter: meter}
	p := network.Program{Rules: led.Rules()}
	p.Rules = append(p.Rules, copyRules(h, hops, meter, sees)...)
	return p
}

// copyBytes is the number of bytes of a copied segment that are sent to the controller. They
// contain its headers.
const copyBytes = 128

// copyRules returns rules that show when a TCP connection ends: segments that close it are
// forwarded as the others, and the controller gets a copy. The controller also gets a copy of
// segments that open a connection, because an application may use the same ports again. On a switch
// that does not match TCP flags, a flow ends only when it has been silent.
func copyRules(h match.Header, hops []network.Hop, meter func(network.PortRef) uint32, sees func(openflow.DatapathID) bool) []network.Rule {
	if h.Proto != packet.ProtoTCP {
		return nil
	}
	first, last := hops[0], hops[len(hops)-1]
	back := network.Hop{Switch: last.Switch, In: last.Out, Out: last.In}
	var out []network.Rule
	add := func(h match.Header, hop network.Hop, flags ...uint16) {
		if !sees(hop.Switch) {
			return
		}
		for _, f := range flags {
			out = append(out, network.Rule{
				Switch: hop.Switch, Stage: network.StageWay, Offset: rule.WayCriticalCopy, Match: h.Match(hop.In, openflow.TCPFlags(f, f)),
				Actions: []openflow.Action{openflow.Output(hop.Output()), openflow.OutputController(copyBytes)},
				Meter:   meter(network.PortRef{Switch: hop.Switch, Port: hop.Out}),
			})
		}
	}
	add(h, first, packet.SYN, packet.FIN, packet.RST)
	add(h.Reverse(), back, packet.FIN, packet.RST)
	return out
}

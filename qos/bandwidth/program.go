package bandwidth

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
)

// wholePacket asks a switch to send packets to the controller unabridged.
const wholePacket = 0xffff

// punts are the rules that bring the first packets of critical traffic up.
func punts(d openflow.DatapathID, definitions []*Definition) network.Program {
	var p network.Program
	seen := map[openflow.Match]bool{}
	for _, def := range definitions {
		for _, m := range def.Matches {
			if seen[m] {
				continue
			}
			seen[m] = true
			p.Rules = append(p.Rules, network.Rule{
				Switch: d, Stage: network.StageWay, Offset: rule.WayCriticalAsk, Match: m, Leased: true,
				Actions: []openflow.Action{openflow.OutputController(wholePacket)},
			})
		}
	}
	return p
}

// program are a flow's rules along a path, in both directions. The rule where the flow
// enters tells when it is over. meter gives the meter that traffic out of a port has to
// pass, zero for none.
func program(h header, path network.Path, idle time.Duration, meter func(network.PortRef) uint32) network.Program {
	var p network.Program
	add := func(h header, hop network.Hop) *network.Rule {
		p.Rules = append(p.Rules, network.Rule{
			Switch: hop.Switch, Stage: network.StageWay, Offset: rule.WayCriticalFlow, Match: h.match(hop.In),
			Actions: []openflow.Action{openflow.Output(hop.Output())}, Meter: meter(network.PortRef{Switch: hop.Switch, Port: hop.Out}),
		})
		return &p.Rules[len(p.Rules)-1]
	}
	back := h.reverse()
	for _, hop := range slices.Backward(path.Hops) {
		r := add(h, hop)
		if hop == path.Hops[0] {
			r.Idle, r.NotifyRemoved = idle, true
		}
		add(back, network.Hop{Switch: hop.Switch, In: hop.Out, Out: hop.In})
	}
	return p
}

// waves is the order in which the switches of a path are written: what lies between,
// then where the answers enter, and last where the flow itself does.
func waves(path network.Path) [][]openflow.DatapathID {
	first, last := path.Hops[0].Switch, path.Hops[len(path.Hops)-1].Switch
	var between []openflow.DatapathID
	for _, hop := range path.Hops {
		if hop.Switch != first && hop.Switch != last {
			between = append(between, hop.Switch)
		}
	}
	return [][]openflow.DatapathID{between, {last}, {first}}
}

// shares are what a flow needs along a path: its rate on every link it goes by, the one
// to its destination included, and the reverse rate on every link that answers go by but
// the one to its source. There they are expected, and nothing is promised to them: or no
// host that sends could be promised all of its link.
func shares(path network.Path, rate, reverse uint64) []reserve.Share {
	var out []reserve.Share
	for i, hop := range path.Hops {
		out = append(out, reserve.Share{Link: network.PortRef{Switch: hop.Switch, Port: hop.Out}, Rate: rate})
		if reverse == 0 {
			continue
		}
		back := reserve.Share{Link: network.PortRef{Switch: hop.Switch, Port: hop.In}, Answers: reverse}
		if i > 0 {
			back.Rate = reverse
		}
		out = append(out, back)
	}
	return out
}

// links are the ports by which a path leaves switches for other switches, in both
// directions.
func links(path network.Path) []network.PortRef {
	var out []network.PortRef
	for i, hop := range path.Hops {
		if i < len(path.Hops)-1 {
			out = append(out, network.PortRef{Switch: hop.Switch, Port: hop.Out})
		}
		if i > 0 {
			out = append(out, network.PortRef{Switch: hop.Switch, Port: hop.In})
		}
	}
	return out
}

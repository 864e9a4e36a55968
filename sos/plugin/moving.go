package plugin

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// An end host that moves is led by rules of another service: those of its own port
// change with every move, and its packets have other addresses there. So its side of a
// session stands where all of its packets pass, wherever it is (network.Anchor). Between
// there and the host its own rules lead, in the stage that comes after ours.

// errMoves says why agents leave a connection of a host that moves alone.
var errMoves = errors.New("an end is a host that moves")

// passes says whether packets of a host that moves may come in by a port of a border
// switch: from other switches, or from itself. What comes from elsewhere is not its own.
func passes(a *network.Anchor, at network.PortRef, top *topology.Topology) bool {
	_, border := a.Border(at.Switch)
	return border && (!top.IsEdge(at) || at == a.Place.At)
}

// nearTo is what a way costs between an end and an agent. One that stands at no border
// of an end that moves cannot serve it: what comes from there would have to turn round
// at the border, on ways that change.
func (s *setups) nearTo(e endpoint, top *topology.Topology, m network.Metric) func(agent network.PortRef) float64 {
	if e.anchor == nil {
		return s.costs.From(top, e.At, m)
	}
	return func(agent network.PortRef) float64 {
		if at, ok := e.anchor.Border(agent.Switch); ok {
			return s.costs.From(top, at, m)(agent)
		}
		return math.Inf(1)
	}
}

// carriable says why connections of a host cannot be carried because it moves, or nil.
func (s *setups) carriable(a *network.Anchor) error {
	if a == nil {
		return nil
	}
	for _, at := range a.Borders {
		if s.net.Topology().Has(at.Switch) && !s.net.HasTables(at.Switch) {
			return fmt.Errorf("%w, and all it sends and gets passes switch %v, which has one table: there the rules that lead the host come first", errMoves, at.Switch)
		}
	}
	return nil
}

// waysTo are the ways to an agent from every border of a host that moves.
func waysTo(a *network.Anchor, agent network.PortRef, top *topology.Topology, m network.Metric) ([][]network.Hop, error) {
	if _, ok := a.Border(agent.Switch); !ok {
		return nil, fmt.Errorf("%w, and its agent at %v stands at none of its borders: %w", errMoves, agent, network.ErrNoPath)
	}
	var borders []openflow.DatapathID
	for _, at := range a.Borders {
		if !slices.Contains(borders, at.Switch) && top.Has(at.Switch) {
			borders = append(borders, at.Switch)
		}
	}
	var ways [][]network.Hop
	for _, d := range borders {
		var ports []uint32
		for _, l := range top.LinksFrom(d) {
			ports = append(ports, l.From.Port)
		}
		if at := a.Place.At; at.Switch == d && top.IsEdge(at) {
			ports = append(ports, at.Port)
		}
		for _, port := range ports {
			path, ok := top.Path(network.PortRef{Switch: d, Port: port}, agent, m)
			if !ok {
				return nil, fmt.Errorf("from border %v to the agent at %v: %w", d, agent, network.ErrNoPath)
			}
			ways = append(ways, path.Hops)
		}
	}
	return ways, nil
}

// movingRules are those of a side whose end host moves. At every border one for each port
// leads to the agent. What comes from elsewhere, as from a place of which we have not
// heard yet, ends there: it means nothing to the other end host. What the agent sends is
// rewritten where it enters, and goes on by the host's own rules.
func (sd *Side) movingRules(sent, arrives, answer, seen header, can Capable) ([]network.Rule, error) {
	last := sd.Path[len(sd.Path)-1]
	rules, err := chain([]network.Hop{{Switch: last.Switch, In: last.Out}}, answer, seen, can, lastCapable)
	if err != nil {
		return nil, err
	}
	// Its own rules are the next table's.
	rules[0].Actions, rules[0].Goto = rules[0].Actions[:len(rules[0].Actions)-1], rule.TableRoute
	ends := map[openflow.DatapathID]bool{}
	for _, way := range sd.Ways {
		toAgent, err := chain(way, sent, arrives, can, firstCapable)
		if err == nil {
			err = sd.spareSYN(&toAgent[0])
		}
		if err != nil {
			return nil, err
		}
		for _, r := range slices.Backward(toAgent) {
			if !slices.ContainsFunc(rules, func(o network.Rule) bool { return o.Switch == r.Switch && o.Key() == r.Key() }) {
				rules = append(rules, r)
			}
		}
		if d := way[0].Switch; !ends[d] {
			ends[d] = true
			stop := network.Rule{Switch: d, Stage: network.StageRewrite, Offset: rule.RewriteStray}
			if stop.Match, err = sent.match(); err == nil {
				err = sd.spareSYN(&stop)
			}
			if err != nil {
				return nil, err
			}
			rules = append(rules, stop)
		}
	}
	return rules, nil
}

// bring brings a side up to date whose end host moves: its ways, and those of its agent.
func (sd *Side) bring(a *network.Anchor, p agents.Place, top *topology.Topology, m network.Metric) (changed bool) {
	ways, err := waysTo(a, p.At, top, m)
	if err != nil || len(ways) == 0 {
		return false
	}
	was := *sd
	same := func(way []network.Hop) bool { return slices.Equal(way, sd.Path) }
	if !slices.ContainsFunc(ways, same) {
		sd.Path = ways[0]
	}
	sd.Ways, sd.AgentMAC, sd.AgentVLAN = ways, p.MAC, p.VLAN
	return !reflect.DeepEqual(was, *sd)
}

// endOf is the address of a side's end host.
func (ss *session) endOf(r agentapi.Role) netip.Addr {
	end, _ := ss.Layout.ends(r)
	return end.Addr()
}

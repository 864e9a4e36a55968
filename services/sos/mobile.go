package sos

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// The rules of another service forward the packets of a mobile end host. The rules at the host's
// own port change with every move, and the packets have other addresses there. So the rules of the
// host's side of a session are written at the border switches, which all of its packets pass,
// wherever the host is (network.Anchor). Between the borders and the host, the packets follow the
// host's own rules, in a stage after that of sessions.

// errMobile means that agents do not carry a connection of a mobile host.
var errMobile = errors.New("an end is a host that moves")

// mayEnterAt reports whether packets of a mobile host may enter a border switch by a port: a port
// to another switch, or the host's own port. Packets at any other port are not the host's.
func mayEnterAt(a *network.Anchor, at network.PortRef, top *topology.Topology) bool {
	_, ok := a.Border(at.Switch)
	return ok && (!top.IsEdge(at) || at == a.Place.At)
}

// pathsTo returns the paths to an agent from every border of a mobile host.
func pathsTo(a *network.Anchor, agent network.PortRef, top *topology.Topology, m network.Metric) ([][]network.Hop, error) {
	if _, ok := a.Border(agent.Switch); !ok {
		return nil, fmt.Errorf("%w, and its agent at %v stands at none of its borders: %w", errMobile, agent, network.ErrNoPath)
	}
	var borders []openflow.DatapathID
	for _, at := range a.Borders {
		if !slices.Contains(borders, at.Switch) && top.Has(at.Switch) {
			borders = append(borders, at.Switch)
		}
	}
	var paths [][]network.Hop
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
			paths = append(paths, path.Hops)
		}
	}
	return paths, nil
}

// mobileRules returns the rules of a side whose end host is mobile. At every border switch, one
// rule for each port leads to the agent. Packets from other ports, for example from a place of the
// host that is not known yet, are dropped, because they would be meaningless to the other end host.
// Packets from the agent are rewritten where they enter, and then follow the host's own rules.
func (sd *Side) mobileRules(sent, arrives, answer, seen header, can Capable) ([]network.Rule, error) {
	last := sd.Path[len(sd.Path)-1]
	rules, err := chain([]network.Hop{{Switch: last.Switch, In: last.Out}}, answer, seen, can, lastCapable)
	if err != nil {
		return nil, err
	}
	// The host's own rules are in the next table.
	rules[0].Actions, rules[0].Goto = rules[0].Actions[:len(rules[0].Actions)-1], rule.TableRoute
	ends := map[openflow.DatapathID]bool{}
	for _, path := range sd.MobilePaths {
		toAgent, err := chain(path, sent, arrives, can, firstCapable)
		if err == nil {
			err = sd.exceptSYN(&toAgent[0])
		}
		if err != nil {
			return nil, err
		}
		for _, r := range slices.Backward(toAgent) {
			if !slices.ContainsFunc(rules, func(o network.Rule) bool { return o.Switch == r.Switch && o.Key() == r.Key() }) {
				rules = append(rules, r)
			}
		}
		if d := path[0].Switch; !ends[d] {
			ends[d] = true
			stop := network.Rule{Switch: d, Stage: network.StageRewrite, Offset: rule.RewriteStray}
			if stop.Match, err = sent.match(); err == nil {
				err = sd.exceptSYN(&stop)
			}
			if err != nil {
				return nil, err
			}
			rules = append(rules, stop)
		}
	}
	return rules, nil
}

// refreshPaths updates the paths of a side whose end host is mobile, and the place of its agent,
// and reports whether they have changed.
func (sd *Side) refreshPaths(a *network.Anchor, p agents.Place, top *topology.Topology, m network.Metric) (changed bool) {
	paths, err := pathsTo(a, p.At, top, m)
	if err != nil || len(paths) == 0 {
		return false
	}
	was := *sd
	same := func(path []network.Hop) bool { return slices.Equal(path, sd.Path) }
	if !slices.ContainsFunc(paths, same) {
		sd.Path = paths[0]
	}
	sd.MobilePaths, sd.AgentMAC, sd.AgentVLAN = paths, p.MAC, p.VLAN
	return !reflect.DeepEqual(was, *sd)
}

// endAddr returns the address of a side's end host.
func (ss *session) endAddr(r agentapi.Role) netip.Addr {
	end, _ := ss.Layout.ends(r)
	return end.Addr()
}

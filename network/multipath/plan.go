package multipath

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Host is a host behind the destination switch.
type Host struct {
	MAC openflow.MAC
	// VLAN is the host's VLAN, zero for none, or rule.AnyVLAN.
	VLAN uint16
	// Port is the port of the destination switch behind which the host is.
	Port uint32
	// Local is true for a host all of whose addresses are in the destination's prefixes: only
	// its own switch has a rule for it.
	Local bool
}

// Destination is a switch with the hosts and prefixes behind it.
type Destination struct {
	Switch openflow.DatapathID
	Hosts  []Host
	// Prefixes are prefixes of IPv4 or IPv6 addresses that are all behind the switch.
	Prefixes []netip.Prefix
}

// Covers reports whether all of the addresses are in the destination's prefixes. It is false if
// there are no addresses.
func (d *Destination) Covers(addrs []netip.Addr) bool {
	return len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a netip.Addr) bool {
		return !slices.ContainsFunc(d.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// Matches returns the matches of all rules for the destination.
func (d *Destination) Matches() (out []openflow.Match) {
	for _, h := range d.Hosts {
		out = append(out, h.match())
	}
	for _, p := range d.Prefixes {
		out = append(out, prefixMatch(p))
	}
	return out
}

// Part holds the rules and the group of one switch for a destination.
type Part struct {
	Switch openflow.DatapathID
	Rules  []rule.Rule
	// Group, if not nil, is the group to which the rules send packets.
	Group *rule.Group
}

// Plan holds the parts of all switches for a destination, in waves. The parts of one wave are written
// at the same time. The first wave is the destination switch's part, and the next are those of the
// nearest switches. A switch that has its new rules sends to switches that have theirs, and the
// others still send as before, so that no packet loops in between. A switch without a path to the
// destination has no part.
type Plan [][]Part

// Options control the plans of a Planner.
type Options struct {
	// Metric decides which paths are good. It must be one that does not change with traffic.
	Metric topology.Metric
	// Unequal uses longer paths too, as long as each hop comes closer to the destination.
	Unequal bool
	// Group returns a group's identifier for its number on a switch.
	Group func(number uint16) uint32
	// Single reports whether a switch has no groups of type SELECT: it then uses one next hop
	// for each destination.
	Single func(openflow.DatapathID) bool
	// Watch reports whether buckets of SELECT groups may watch their port on a switch: the
	// switch then uses other buckets itself as soon as the port is down.
	Watch func(openflow.DatapathID) bool
}

// Planner makes plans. It is not safe for concurrent use.
type Planner struct {
	o        Options
	numbers  groupNumbers
	now      *topology.Topology
	all      *topology.Topology // with links that are gone and may come back
	complete bool               // no such links exist
	links    []int32            // indices of links
	nextHops []NextHop
	outputs  map[string]output // by switch and next hops
	lastUsed []usedLinks       // by the switch's index
	key      []byte
}

// output holds the actions by which a switch sends to its next hops: to a group or, without one, to
// one of several ports.
type output struct {
	group   *rule.Group
	actions [][]openflow.Action // one of them is chosen
}

// usedLinks holds the links that a switch uses for the previous destination, and their output, if
// all of the links are up. The next destination often has the same links.
type usedLinks struct {
	links  []int32
	output output
}

// New returns a planner without a network.
func New(o Options) *Planner { return &Planner{o: o, numbers: newGroupNumbers()} }

// Begin sets the network for the following plans. all also contains links that are gone and may
// come back. Numbers of groups that were in no plan since the last Begin may be used for other
// groups from now on.
func (p *Planner) Begin(now, all *topology.Topology) {
	p.numbers.freeUnused()
	p.now, p.all, p.complete = now, all, len(now.Links) == len(all.Links)
	p.outputs, p.lastUsed = map[string]output{}, make([]usedLinks, len(now.Switches))
}

// Keep reserves the number of a group.
func (p *Planner) Keep(g *rule.Group) {
	ports := make([]uint32, len(g.Buckets))
	for i, b := range g.Buckets {
		ports[i] = b.Actions[0].Port()
	}
	p.numbers.get(g.Switch, ports, g.Buckets[0].WatchPort == ports[0])
}

// Plan returns the plan for a destination, and false if the destination's switch is not in the
// network.
func (p *Planner) Plan(d Destination) (out Plan, ok bool) {
	toward, ok := p.now.Toward(d.Switch, p.o.Metric)
	if !ok {
		return nil, false
	}
	ideal := toward
	if !p.complete {
		ideal, _ = p.all.Toward(d.Switch, p.o.Metric)
	}
	out = Plan{{d.deliveryPart()}}
	others, forward := toward.Nearest()[1:], d.forwardRules()
	parts, rules := make([]Part, len(others)), make([]rule.Rule, len(forward)*len(others)) // allocated for all parts together
	for near := 0.0; len(others) > 0; others = others[1:] {
		at := others[0]
		if cost := toward.Cost(at); cost > near {
			near, out = cost, append(out, parts[:0])
		}
		if p.links = toward.Links(p.links[:0], at, p.o.Unequal); len(p.links) == 0 {
			continue
		}
		use := p.outputFor(at, toward, ideal)
		part := Part{Switch: p.now.Switches[at], Group: use.group, Rules: rules[:len(forward):len(forward)]}
		copy(part.Rules, forward)
		for i := range part.Rules {
			part.Rules[i].Switch, part.Rules[i].Actions = part.Switch, use.actions[uint64(d.Switch)%uint64(len(use.actions))]
		}
		wave := &out[len(out)-1]
		*wave = append(*wave, part)
		parts, rules = parts[1:], rules[len(forward):]
	}
	return out, true
}

// deliveryPart returns the destination switch's rules, which send packets to its hosts.
func (d *Destination) deliveryPart() Part {
	out := Part{Switch: d.Switch}
	for _, h := range d.Hosts {
		r := h.rule()
		r.Switch, r.Actions = d.Switch, []openflow.Action{openflow.Output(h.Port)}
		out.Rules = append(out.Rules, r)
	}
	return out
}

// forwardRules returns the rules of the other switches, without switch and actions.
func (d *Destination) forwardRules() (out []rule.Rule) {
	for _, h := range d.Hosts {
		if !h.Local {
			out = append(out, h.rule())
		}
	}
	for _, p := range d.Prefixes {
		out = append(out, prefixRule(p))
	}
	return out
}

// outputFor returns the output of a switch over the links in p.links. A switch that can use only one
// link for each destination chooses it by the destination.
func (p *Planner) outputFor(at int32, now, all topology.Toward) output {
	gone := p.goneHops(at, now, all)
	last := &p.lastUsed[at]
	if len(gone) == 0 && slices.Equal(last.links, p.links) {
		return last.output
	}
	p.nextHops = p.nextHops[:0]
	for _, l := range p.links {
		p.nextHops = append(p.nextHops, NextHop{Port: p.now.Links[l].From.Port, Capacity: p.now.Links[l].Capacity, Up: true})
	}
	p.nextHops = append(p.nextHops, gone...)
	out := p.outputOf(p.now.Switches[at])
	if len(gone) == 0 {
		*last = usedLinks{slices.Clone(p.links), out}
	}
	return out
}

// goneHops returns the links that the switch would use besides p.links if they were not gone. It
// returns none if the switch is farther from the destination than it would be with all links up.
func (p *Planner) goneHops(at int32, now, all topology.Toward) (out []NextHop) {
	if p.complete || len(all.Nearest()) == 0 {
		return nil
	}
	there, known := p.all.Index(p.now.Switches[at])
	if !known || now.Cost(at) > all.Cost(int32(there))*(1+1e-9) {
		return nil
	}
	for _, l := range all.Links(nil, int32(there), p.o.Unequal) {
		l := p.all.Links[l]
		if !slices.ContainsFunc(p.links, func(f int32) bool { return p.now.Links[f].From.Port == l.From.Port }) {
			out = append(out, NextHop{Port: l.From.Port, Capacity: l.Capacity})
		}
	}
	return out
}

// outputOf returns the output of a switch to the next hops in p.nextHops.
func (p *Planner) outputOf(sw openflow.DatapathID) output {
	p.key = binary.BigEndian.AppendUint64(p.key[:0], uint64(sw))
	for _, w := range p.nextHops {
		up := byte(0)
		if w.Up {
			up = 1
		}
		p.key = append(binary.BigEndian.AppendUint32(p.key, w.Port), up)
	}
	s, known := p.outputs[string(p.key)]
	if !known {
		s = p.newOutput(sw)
		p.outputs[string(p.key)] = s
	}
	return s
}

func (p *Planner) newOutput(sw openflow.DatapathID) output {
	ports := Spread(p.nextHops)
	one := ports[0]
	if !slices.ContainsFunc(ports, func(port uint32) bool { return port != one }) {
		ports = ports[:1]
	} else if p.o.Single == nil || !p.o.Single(sw) {
		watch := p.o.Watch != nil && p.o.Watch(sw)
		if n, ok := p.numbers.get(sw, ports, watch); ok {
			id := p.o.Group(n)
			return output{newGroup(sw, id, ports, watch), [][]openflow.Action{{openflow.GroupAction(id)}}}
		}
	}
	var s output
	for _, port := range ports {
		s.actions = append(s.actions, []openflow.Action{openflow.Output(port)})
	}
	return s
}

func newGroup(sw openflow.DatapathID, id uint32, ports []uint32, watch bool) *rule.Group {
	g := &rule.Group{Switch: sw, ID: id, Type: openflow.GroupTypeSelect}
	for _, port := range ports {
		b := openflow.NewBucket(openflow.Output(port))
		b.Weight = 1
		if watch {
			b.WatchPort = port
		}
		g.Buckets = append(g.Buckets, b)
	}
	return g
}

func (h Host) match() openflow.Match {
	switch h.VLAN {
	case rule.AnyVLAN:
		return openflow.MustMatch(openflow.EthDst(h.MAC))
	case 0:
		return openflow.MustMatch(openflow.EthDst(h.MAC), openflow.NoVLAN())
	}
	return openflow.MustMatch(openflow.EthDst(h.MAC), openflow.VLANVID(h.VLAN))
}

func (h Host) rule() rule.Rule {
	return rule.Rule{Stage: rule.StageRoute, Offset: rule.RouteHost, Match: h.match()}
}

func prefixMatch(p netip.Prefix) openflow.Match {
	kind := uint16(packet.TypeIPv4)
	if p.Addr().Is6() {
		kind = packet.TypeIPv6
	}
	// Broadcasts within the prefix are flooded along the tree.
	fields := []openflow.OXM{openflow.EthDst(openflow.MAC{}).WithMask(1 << 40), openflow.EthType(kind)}
	if p.Bits() > 0 {
		fields = append(fields, openflow.IPDstPrefix(p))
	}
	return openflow.MustMatch(fields...)
}

func prefixRule(p netip.Prefix) rule.Rule {
	return rule.Rule{Stage: rule.StageRoute, Offset: rule.RoutePrefix + uint16(p.Bits()), Match: prefixMatch(p)}
}

package multipath

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Host is one behind the destination switch.
type Host struct {
	MAC openflow.MAC
	// VLAN is the VLAN that it is in, zero for none, or rule.AnyVLAN.
	VLAN uint16
	// Port is the destination switch's, behind which it is.
	Port uint32
	// Local is for a host of which all addresses are in the destination's prefixes: only its own
	// switch has a rule for it.
	Local bool
}

// Destination is a switch and what is behind it.
type Destination struct {
	Switch openflow.DatapathID
	Hosts  []Host
	// Prefixes are those of IPv4 or IPv6 addresses that are all behind the switch.
	Prefixes []netip.Prefix
}

// Covers says whether some addresses are all in the destination's prefixes.
func (d *Destination) Covers(addrs []netip.Addr) bool {
	return len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a netip.Addr) bool {
		return !slices.ContainsFunc(d.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// Matches are those of all rules for the destination.
func (d *Destination) Matches() (out []openflow.Match) {
	for _, h := range d.Hosts {
		out = append(out, h.match())
	}
	for _, p := range d.Prefixes {
		out = append(out, prefixMatch(p))
	}
	return out
}

// Part is what one switch is to have for a destination.
type Part struct {
	Switch openflow.DatapathID
	Rules  []rule.Rule
	// Group, if not nil, is where the rules lead.
	Group *rule.Group
}

// Plan is what switches are to have for a destination, in the order in which they are written:
// the parts of one wave at once, its own switch's first, then those of who is nearest to it. Who
// is written sends to who has been, and who has not sends as before, so that whatever a packet
// meets on its way, it goes in no circle. A switch from which there is no way has no part.
type Plan [][]Part

// Options say what a Planner makes.
type Options struct {
	// Metric says which ways are good. It has to be one that does not change by itself.
	Metric topology.Metric
	// Unequal takes ways that are longer, too, as long as each step leads nearer.
	Unequal bool
	// Group makes a group's identifier from its number on a switch.
	Group func(number uint16) uint32
	// Single says of a switch that it has no groups that select: it uses one way for each
	// destination.
	Single func(openflow.DatapathID) bool
	// Watch says of a switch that buckets of groups that select may watch their port: then it
	// uses others itself as soon as that is down.
	Watch func(openflow.DatapathID) bool
}

// Planner makes plans. It is not safe for concurrent use.
type Planner struct {
	o       Options
	numbers numbers
	now     *topology.Topology
	all     *topology.Topology // with links that may come back
	whole   bool               // there are none of these
	found   []topology.Link
	ways    []Way
	spreads map[string]spread // by switch and ways
	key     []byte
}

// spread is how a switch uses ways: by a group, or for want of one by one of the ports.
type spread struct {
	group *rule.Group
	ports []uint32
}

// New returns a planner that knows no network yet.
func New(o Options) *Planner { return &Planner{o: o, numbers: newNumbers()} }

// Begin has the plans that follow be those of a network; all has the links that are gone and may
// come back besides. Numbers of groups that no plan has had since the last Begin may be used
// for others from now on.
func (p *Planner) Begin(now, all *topology.Topology) {
	p.numbers.forget()
	p.now, p.all, p.whole, p.spreads = now, all, len(now.Links) == len(all.Links), map[string]spread{}
}

// Keep has the number of a group not be used for another one.
func (p *Planner) Keep(g *rule.Group) {
	ports := make([]uint32, len(g.Buckets))
	for i, b := range g.Buckets {
		ports[i] = b.Actions[0].Port()
	}
	p.numbers.get(g.Switch, ports, g.Buckets[0].WatchPort == ports[0])
}

// Plan is that of a destination; false if its switch is not there.
func (p *Planner) Plan(d Destination) (out Plan, here bool) {
	toward, here := p.now.Toward(d.Switch, p.o.Metric)
	if !here {
		return nil, false
	}
	ideal, _ := p.all.Toward(d.Switch, p.o.Metric)
	type step struct {
		sw   openflow.DatapathID
		cost float64
	}
	var steps []step
	for _, sw := range p.now.Switches {
		if cost, reached := toward.Cost(sw); reached {
			steps = append(steps, step{sw, cost})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.cost, b.cost) })
	for i, s := range steps {
		if i == 0 || s.cost > steps[i-1].cost {
			out = append(out, nil)
		}
		part, some := d.deliver(), true
		if s.sw != d.Switch {
			part, some = p.lead(d, s.sw, toward, ideal)
		}
		if some {
			out[len(out)-1] = append(out[len(out)-1], part)
		}
	}
	return out, true
}

// deliver has the destination's switch give packets to its hosts.
func (d *Destination) deliver() Part {
	out := Part{Switch: d.Switch}
	for _, h := range d.Hosts {
		out.Rules = append(out.Rules, h.rule(d.Switch, openflow.Output(h.Port)))
	}
	return out
}

// lead has a switch send to where it is nearer; false if it has no link that leads there.
func (p *Planner) lead(d Destination, sw openflow.DatapathID, now, all topology.Toward) (out Part, some bool) {
	if p.find(sw, now, all); len(p.found) == 0 {
		return out, false
	}
	out.Switch = sw
	action := p.use(&out, uint64(d.Switch))
	for _, h := range d.Hosts {
		if !h.Local {
			out.Rules = append(out.Rules, h.rule(sw, action))
		}
	}
	for _, prefix := range d.Prefixes {
		out.Rules = append(out.Rules, prefixRule(sw, prefix, action))
	}
	return out, true
}

// find finds the ways of a switch; found are the links of those that are up.
func (p *Planner) find(sw openflow.DatapathID, now, all topology.Toward) {
	p.ways = p.ways[:0]
	p.found = now.Links(p.found[:0], sw, p.o.Unequal)
	for _, l := range p.found {
		p.ways = append(p.ways, Way{Port: l.From.Port, Capacity: l.Capacity, Up: true})
	}
	if len(p.found) == 0 || p.whole || !alike(now, all, sw) {
		return
	}
	for _, l := range all.Links(nil, sw, p.o.Unequal) {
		if !slices.ContainsFunc(p.ways, func(w Way) bool { return w.Port == l.From.Port }) {
			p.ways = append(p.ways, Way{Port: l.From.Port, Capacity: l.Capacity})
		}
	}
}

// alike says whether a switch is as far from the destination as it is when all links are there:
// only then the links that are gone would be used beside the others.
func alike(now, all topology.Toward, sw openflow.DatapathID) bool {
	a, _ := now.Cost(sw)
	b, reached := all.Cost(sw)
	return reached && a <= b*(1+1e-9)
}

// use is the action by which a switch uses the ways that were found; one that can use a single
// one for each destination chooses it by which that is.
func (p *Planner) use(out *Part, which uint64) openflow.Action {
	p.key = binary.BigEndian.AppendUint64(p.key[:0], uint64(out.Switch))
	for _, w := range p.ways {
		up := byte(0)
		if w.Up {
			up = 1
		}
		p.key = append(binary.BigEndian.AppendUint32(p.key, w.Port), up)
	}
	s, known := p.spreads[string(p.key)]
	if !known {
		s = p.spread(out.Switch)
		p.spreads[string(p.key)] = s
	}
	if out.Group = s.group; s.group != nil {
		return openflow.GroupAction(s.group.ID)
	}
	return openflow.Output(s.ports[which%uint64(len(s.ports))])
}

// spread says how a switch uses the ways that were found.
func (p *Planner) spread(sw openflow.DatapathID) spread {
	ports := Spread(p.ways)
	one := ports[0]
	if !slices.ContainsFunc(ports, func(port uint32) bool { return port != one }) || p.o.Single != nil && p.o.Single(sw) {
		return spread{ports: ports}
	}
	watch := p.o.Watch != nil && p.o.Watch(sw)
	n, some := p.numbers.get(sw, ports, watch)
	if !some {
		return spread{ports: ports}
	}
	g := &rule.Group{Switch: sw, ID: p.o.Group(n), Type: openflow.GroupTypeSelect}
	for _, port := range ports {
		b := openflow.NewBucket(openflow.Output(port))
		b.Weight = 1
		if watch {
			b.WatchPort = port
		}
		g.Buckets = append(g.Buckets, b)
	}
	return spread{group: g}
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

func (h Host) rule(sw openflow.DatapathID, a openflow.Action) rule.Rule {
	return rule.Rule{Switch: sw, Stage: rule.StageRoute, Offset: rule.RouteHost, Match: h.match(), Actions: []openflow.Action{a}}
}

func prefixMatch(p netip.Prefix) openflow.Match {
	kind := uint16(packet.TypeIPv4)
	if p.Addr().Is6() {
		kind = packet.TypeIPv6
	}
	// What goes to all addresses of a prefix goes along the tree.
	fields := []openflow.OXM{openflow.EthDst(openflow.MAC{}).WithMask(1 << 40), openflow.EthType(kind)}
	if p.Bits() > 0 {
		fields = append(fields, openflow.IPDstPrefix(p))
	}
	return openflow.MustMatch(fields...)
}

func prefixRule(sw openflow.DatapathID, p netip.Prefix, a openflow.Action) rule.Rule {
	return rule.Rule{Switch: sw, Stage: rule.StageRoute, Offset: rule.RoutePrefix + uint16(p.Bits()), Match: prefixMatch(p), Actions: []openflow.Action{a}}
}

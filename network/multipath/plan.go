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
	found   []int32            // places of links
	ways    []Way
	spreads map[string]spread // by switch and ways
	last    []used            // by the switch's place
	key     []byte
}

// spread is how a switch uses ways: by a group, or for want of one by one of the ports.
type spread struct {
	group   *rule.Group
	actions [][]openflow.Action // to choose one of
}

// used is how a switch has last used links, all of them up: mostly it is the same for the next
// destination.
type used struct {
	links  []int32
	spread spread
}

// New returns a planner that knows no network yet.
func New(o Options) *Planner { return &Planner{o: o, numbers: newNumbers()} }

// Begin has the plans that follow be those of a network; all has the links that are gone and may
// come back besides. Numbers of groups that no plan has had since the last Begin may be used
// for others from now on.
func (p *Planner) Begin(now, all *topology.Topology) {
	p.numbers.forget()
	p.now, p.all, p.whole = now, all, len(now.Links) == len(all.Links)
	p.spreads, p.last = map[string]spread{}, make([]used, len(now.Switches))
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
	ideal := toward
	if !p.whole {
		ideal, _ = p.all.Toward(d.Switch, p.o.Metric)
	}
	out = Plan{{d.deliver()}}
	others, lead := toward.Nearest()[1:], d.lead()
	parts, rules := make([]Part, len(others)), make([]rule.Rule, len(lead)*len(others)) // room for all
	for near := 0.0; len(others) > 0; others = others[1:] {
		at := others[0]
		if cost := toward.Cost(at); cost > near {
			near, out = cost, append(out, parts[:0])
		}
		if p.found = toward.Links(p.found[:0], at, p.o.Unequal); len(p.found) == 0 {
			continue
		}
		use := p.use(at, toward, ideal)
		part := Part{Switch: p.now.Switches[at], Group: use.group, Rules: rules[:len(lead):len(lead)]}
		copy(part.Rules, lead)
		for i := range part.Rules {
			part.Rules[i].Switch, part.Rules[i].Actions = part.Switch, use.actions[uint64(d.Switch)%uint64(len(use.actions))]
		}
		wave := &out[len(out)-1]
		*wave = append(*wave, part)
		parts, rules = parts[1:], rules[len(lead):]
	}
	return out, true
}

// deliver has the destination's switch give packets to its hosts.
func (d *Destination) deliver() Part {
	out := Part{Switch: d.Switch}
	for _, h := range d.Hosts {
		r := h.rule()
		r.Switch, r.Actions = d.Switch, []openflow.Action{openflow.Output(h.Port)}
		out.Rules = append(out.Rules, r)
	}
	return out
}

// lead are the rules of the other switches, which do not yet say which they are nor by which
// links they send.
func (d *Destination) lead() (out []rule.Rule) {
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

// use is how a switch uses the links that were found; one that can use a single one for each
// destination chooses it by which that is.
func (p *Planner) use(at int32, now, all topology.Toward) spread {
	gone := p.gone(at, now, all)
	last := &p.last[at]
	if len(gone) == 0 && slices.Equal(last.links, p.found) {
		return last.spread
	}
	p.ways = p.ways[:0]
	for _, l := range p.found {
		p.ways = append(p.ways, Way{Port: p.now.Links[l].From.Port, Capacity: p.now.Links[l].Capacity, Up: true})
	}
	p.ways = append(p.ways, gone...)
	out := p.spread(p.now.Switches[at])
	if len(gone) == 0 {
		*last = used{slices.Clone(p.found), out}
	}
	return out
}

// gone are links that the switch would use beside those that were found, and may use again:
// if it is as far from the destination as it is when all links are there.
func (p *Planner) gone(at int32, now, all topology.Toward) (out []Way) {
	if p.whole || len(all.Nearest()) == 0 {
		return nil
	}
	there, known := p.all.Index(p.now.Switches[at])
	if !known || now.Cost(at) > all.Cost(int32(there))*(1+1e-9) {
		return nil
	}
	for _, l := range all.Links(nil, int32(there), p.o.Unequal) {
		l := p.all.Links[l]
		if !slices.ContainsFunc(p.found, func(f int32) bool { return p.now.Links[f].From.Port == l.From.Port }) {
			out = append(out, Way{Port: l.From.Port, Capacity: l.Capacity})
		}
	}
	return out
}

// spread says how a switch uses the ways that there are.
func (p *Planner) spread(sw openflow.DatapathID) spread {
	p.key = binary.BigEndian.AppendUint64(p.key[:0], uint64(sw))
	for _, w := range p.ways {
		up := byte(0)
		if w.Up {
			up = 1
		}
		p.key = append(binary.BigEndian.AppendUint32(p.key, w.Port), up)
	}
	s, known := p.spreads[string(p.key)]
	if !known {
		s = p.newSpread(sw)
		p.spreads[string(p.key)] = s
	}
	return s
}

func (p *Planner) newSpread(sw openflow.DatapathID) spread {
	ports := Spread(p.ways)
	one := ports[0]
	if !slices.ContainsFunc(ports, func(port uint32) bool { return port != one }) {
		ports = ports[:1]
	} else if p.o.Single == nil || !p.o.Single(sw) {
		watch := p.o.Watch != nil && p.o.Watch(sw)
		if n, some := p.numbers.get(sw, ports, watch); some {
			id := p.o.Group(n)
			return spread{newGroup(sw, id, ports, watch), [][]openflow.Action{{openflow.GroupAction(id)}}}
		}
	}
	var s spread
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
	// What goes to all addresses of a prefix goes along the tree.
	fields := []openflow.OXM{openflow.EthDst(openflow.MAC{}).WithMask(1 << 40), openflow.EthType(kind)}
	if p.Bits() > 0 {
		fields = append(fields, openflow.IPDstPrefix(p))
	}
	return openflow.MustMatch(fields...)
}

func prefixRule(p netip.Prefix) rule.Rule {
	return rule.Rule{Stage: rule.StageRoute, Offset: rule.RoutePrefix + uint16(p.Bits()), Match: prefixMatch(p)}
}

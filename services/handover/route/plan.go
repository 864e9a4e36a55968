package route

import (
	"cmp"
	"fmt"
	"slices"
	"weak"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// NewPlan returns a plan that serves a device. t must be the topology of the network to which the rules
// will be written. If a bicast is not possible, the plan serves the first place alone, and Fallback
// says why.
func NewPlan(t *network.Topology, w Want) (Plan, error) {
	if err := w.check(t); err != nil {
		return Plan{}, err
	}
	p := Plan{want: w, top: weak.Make(t)}
	first := w.Places[0]
	near, unreached := w.reachable(t, first)
	p.Unreached = unreached
	egress, up, ok := w.egress(t, first, near)
	if !ok {
		return Plan{}, fmt.Errorf("%w: place %v", ErrUnreachable, first.At)
	}
	p.Egress, p.Up = egress, up
	borders := append(make([]Border, 0, len(near)), egress)
	for _, r := range near {
		if r.At != egress.At {
			borders = append(borders, r)
		}
	}
	down := newTree(t, borders, first.At)
	p.Path = down.path(egress.At)
	p.order = down.order()
	p.upEntries(t, first, up)
	if len(w.Places) == 2 {
		p.bicast(t, down, len(borders))
	}
	p.downEntries(down)
	p.buildProgram()
	return p, nil
}

// bicast adds the path to the second place, or sets Fallback.
func (p *Plan) bicast(t *network.Topology, down tree, borders int) {
	second := p.want.Places[1]
	near, _ := p.want.reachable(t, second)
	_, up, ok := p.want.egress(t, second, near)
	if ok {
		p.Branch, ok = down.branch(t, p.Path, borders, second.At)
	}
	if !ok {
		p.Branch = nil
		p.Fallback = fmt.Sprintf("no path from the first path to %v and back to a border", second.At)
		return
	}
	p.Join = p.Branch[0].Switch
	p.upEntries(t, second, up)
	way := make([]openflow.DatapathID, 0, len(p.Branch)+len(p.order))
	for _, h := range slices.Backward(p.Branch[1:]) {
		way = append(way, h.Switch)
	}
	for _, sw := range p.order {
		if !slices.Contains(way, sw) {
			way = append(way, sw)
		}
	}
	p.order = way
}

// upEntries adds the rules for packets from a place. They end at the first switch that already has a
// rule for these packets in the plan.
func (p *Plan) upEntries(t *network.Topology, place Place, up []network.Hop) {
	for i, h := range up {
		e := entry{sw: h.Switch, up: true, in: h.In}
		if i == 0 {
			e.mac = place.MAC
		}
		if i > 0 && slices.ContainsFunc(p.entries, func(o entry) bool { return o.sw == e.sw && o.sameMatch(&e) }) {
			return
		}
		o := out{port: h.Out}
		if i < len(up)-1 {
			o.to = network.PortRef{Switch: up[i+1].Switch, Port: up[i+1].In}
		}
		e.add(o)
		p.entries = append(p.entries, e)
	}
}

// downEntries adds the rules for packets to the device.
func (p *Plan) downEntries(down tree) {
	for i := range down {
		p.treeEntries(&down[i])
	}
	for i, h := range p.Branch {
		if i > 0 {
			e := entry{sw: h.Switch, mac: branchMAC}
			e.add(p.branchOut(i))
			p.entries = append(p.entries, e)
		}
	}
}

// branchOut returns where switch i of the branch sends the copy. The first switch marks the copy,
// the last removes the mark.
func (p *Plan) branchOut(i int) out {
	h, second := p.Branch[i], p.want.Places[1]
	if i < len(p.Branch)-1 {
		next := p.Branch[i+1]
		o := out{port: h.Out, to: network.PortRef{Switch: next.Switch, Port: next.In}}
		if i == 0 {
			o.mac = branchMAC
		}
		return o
	}
	o := out{port: h.Out, mac: second.MAC}
	if i > 0 && o.mac.IsZero() {
		o.mac = p.want.Home
	}
	return o
}

// treeEntries adds the rules of a switch of the tree: one for all ports, and one for each port by
// which packets may both come in and leave, such as those between two devices behind one port.
func (p *Plan) treeEntries(n *node) {
	e := entry{sw: n.sw}
	first := out{port: n.out, to: n.to}
	if n.to.IsZero() {
		first.mac = p.want.Places[0].MAC
	}
	e.add(first)
	if p.Bicast() && n.sw == p.Join {
		e.add(p.branchOut(0))
	}
	p.entries = append(p.entries, e)
	for i, o := range e.outs[:e.n] {
		switch {
		case i > 0 && o.port == first.port:
			continue // the first copy leaves by the same port, and its rule serves both
		case o.to.IsZero() && o.mac.IsZero(), i == 0 && !o.to.IsZero():
			continue // without a rule, packets that another domain or the next switch sends back are dropped
		}
		back := e
		back.in = o.port
		p.entries = append(p.entries, back)
	}
}

// buildProgram makes the program from the entries.
func (p *Plan) buildProgram() {
	p.Program.Rules = make([]network.Rule, len(p.entries))
	for i := range p.entries {
		e := &p.entries[i]
		p.Program.Rules[i] = e.rule(&p.want)
		if !slices.Contains(p.order, e.sw) {
			p.order = append(p.order, e.sw)
		}
	}
}

// node is one switch of an in-tree. The switch treats all packets to the device alike, from whatever
// port they come.
type node struct {
	sw      openflow.DatapathID
	in      uint32 // port by which the packets of the first border that uses the node arrive
	out     uint32
	to      network.PortRef // where out leads; zero at the device
	depth   int             // number of links to the device
	borders int             // number of borders whose packets pass the node
}

// tree is an in-tree from borders to a place.
type tree []node

// find returns the node of a switch, or nil.
func (t tree) find(sw openflow.DatapathID) *node {
	for i := range t {
		if t[i].sw == sw {
			return &t[i]
		}
	}
	return nil
}

// newTree returns an in-tree. The first border gets a path with the fewest links; each other
// border follows its own such path until it meets the tree. The paths of one border to several
// places part only once, so a move changes nothing above that point.
func newTree(top *network.Topology, borders []Border, place network.PortRef) tree {
	t := make(tree, 0, 8)
	for _, r := range borders {
		p, ok := top.FanPath(r.At, place)
		if !ok {
			continue
		}
		begin, depth := len(t), 0
		for i, h := range p.Hops {
			if n := t.find(h.Switch); n != nil {
				depth = n.depth + 1
				break
			}
			n := node{sw: h.Switch, in: h.In, out: h.Out}
			if i < len(p.Hops)-1 {
				n.to = network.PortRef{Switch: p.Hops[i+1].Switch, Port: p.Hops[i+1].In}
			}
			t = append(t, n)
		}
		for i := len(t) - 1; i >= begin; i-- {
			t[i].depth = depth
			depth++
		}
		for n := t.find(r.At.Switch); n != nil; n = t.find(n.to.Switch) {
			n.borders++
			if n.to.IsZero() {
				break
			}
		}
	}
	return t
}

// path returns the path of packets that enter at a port.
func (t tree) path(from network.PortRef) []network.Hop {
	var out []network.Hop
	for n := t.find(from.Switch); n != nil; n = t.find(n.to.Switch) {
		out = append(out, network.Hop{Switch: n.sw, In: from.Port, Out: n.out})
		if n.to.IsZero() {
			break
		}
		from = n.to
	}
	return out
}

// order returns the switches, those nearest to the device first.
func (t tree) order() []openflow.DatapathID {
	sorted := slices.Clone(t)
	slices.SortStableFunc(sorted, func(a, b node) int { return cmp.Compare(a.depth, b.depth) })
	out := make([]openflow.DatapathID, len(sorted))
	for i, n := range sorted {
		out[i] = n.sw
	}
	return out
}

// branch returns the shortest path to a second place from a switch that the packets of all borders
// pass. trunk is the first border's path.
func (t tree) branch(top *network.Topology, trunk []network.Hop, borders int, to network.PortRef) ([]network.Hop, bool) {
	end, ok := top.Index(to.Switch)
	if !ok {
		return nil, false
	}
	const unseen, source = -2, -1
	via := make([]int, len(top.Switches)) // index in found of the link that leads to each switch
	for i := range via {
		via[i] = unseen
	}
	var found []network.Link
	var queue []openflow.DatapathID
	for _, h := range trunk {
		if i, ok := top.Index(h.Switch); ok && t.find(h.Switch).borders == borders {
			via[i] = source
			queue = append(queue, h.Switch)
		}
	}
	for len(queue) > 0 && via[end] == unseen {
		for _, l := range top.LinksFrom(queue[0]) {
			i, _ := top.Index(l.To.Switch)
			if via[i] != unseen {
				continue
			}
			via[i] = len(found)
			found = append(found, l)
			queue = append(queue, l.To.Switch)
		}
		queue = queue[1:]
	}
	if via[end] == unseen {
		return nil, false
	}
	return traceBack(top, trunk, found, via, to), true
}

// traceBack returns the path that a search has found.
func traceBack(top *network.Topology, trunk []network.Hop, found []network.Link, via []int, to network.PortRef) []network.Hop {
	out := to.Port
	var back []network.Hop
	sw := to.Switch
	for {
		i, _ := top.Index(sw)
		if via[i] < 0 {
			break
		}
		l := found[via[i]]
		back = append(back, network.Hop{Switch: sw, In: l.To.Port, Out: out})
		sw, out = l.From.Switch, l.From.Port
	}
	join := network.Hop{Switch: sw, Out: out}
	for _, h := range trunk {
		if h.Switch == sw {
			join.In = h.In
		}
	}
	back = append(back, join)
	slices.Reverse(back)
	return back
}

// branchMAC is the destination that copies have from the join to the end of a branch. It
// distinguishes them from the device's other packets on the same links: those for other devices on
// their way up, or those of the tree that will serve the device after its move.
var branchMAC = openflow.MAC{0x02, 0x51, 0x1c, 0, 0, 0x02}

// entry is one rule of a plan, in the form in which the search for waves uses it.
type entry struct {
	sw openflow.DatapathID
	// up reports whether the rule is for packets from the device; otherwise it is for packets to
	// it.
	up bool
	// in is the ingress port, or zero for all.
	in uint32
	// mac is the source of packets from the device, or the destination of packets to it; zero for
	// all.
	mac  openflow.MAC
	outs [2]out
	n    uint8
}

// out is one copy of a packet that a rule sends.
type out struct {
	port uint32
	mac  openflow.MAC    // written as destination, zero to leave it unchanged
	to   network.PortRef // where the link from port leads, zero if there is none
}

// add adds a copy.
func (e *entry) add(o out) {
	e.outs[e.n] = o
	e.n++
}

// sameMatch reports whether two entries match the same packets of a switch.
func (e *entry) sameMatch(o *entry) bool {
	return e.up == o.up && e.in == o.in && e.mac == o.mac
}

// rule returns the entry as a rule for the ledger.
func (e *entry) rule(w *Want) network.Rule {
	r := network.Rule{Switch: e.sw, Stage: network.StageDevice, Offset: rule.DeviceUp}
	oxms := [4]openflow.OXM{openflow.EthType(packet.TypeIPv4)}
	match := oxms[:1]
	if e.in != 0 {
		match = append(match, openflow.InPort(e.in))
	}
	if e.up {
		match = append(match, openflow.IPSrc(w.IP))
		if !e.mac.IsZero() {
			match = append(match, openflow.EthSrc(e.mac))
		}
		r.Actions = e.upActions(w)
	} else {
		match = append(match, openflow.IPDst(w.IP))
		r.Offset = rule.DeviceDown
		switch {
		case !e.mac.IsZero():
			match = append(match, openflow.EthDst(e.mac))
			r.Offset = rule.DeviceBranch
		case e.in != 0:
			r.Offset = rule.DeviceDownPort
		}
		r.Actions = e.downActions()
	}
	r.Match = openflow.MustMatch(match...)
	return r
}

// upActions returns the actions for packets from the device.
func (e *entry) upActions(w *Want) []openflow.Action {
	actions := make([]openflow.Action, 0, 2)
	if !e.mac.IsZero() && e.mac != w.Home {
		actions = append(actions, openflow.SetField(openflow.EthSrc(w.Home)))
	}
	return append(actions, openflow.Output(e.output(e.outs[0].port)))
}

// downActions returns the actions for packets to the device. Copies that are not rewritten are
// sent first.
func (e *entry) downActions() []openflow.Action {
	actions := make([]openflow.Action, 0, 2*e.n)
	for _, o := range e.outs[:e.n] {
		if o.mac.IsZero() {
			actions = append(actions, openflow.Output(e.output(o.port)))
		}
	}
	for _, o := range e.outs[:e.n] {
		if !o.mac.IsZero() {
			actions = append(actions, openflow.SetField(openflow.EthDst(o.mac)), openflow.Output(e.output(o.port)))
		}
	}
	return actions
}

// output returns the port of an output action. A packet that leaves by its ingress port needs a
// reserved port number.
func (e *entry) output(port uint32) uint32 {
	return network.Hop{In: e.in, Out: port}.Output()
}

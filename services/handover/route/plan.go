package route

import (
	"fmt"
	"slices"
	"weak"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// NewPlan returns a plan that serves a device. The topology must be the one its rules will be
// written for. If a bicast is not possible the plan serves the first place alone, and Fallback
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

// upEntries adds the rules for packets from a place. They end where the path joins one that is
// there already.
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
			continue // the first has made this rule
		case o.to.IsZero() && o.mac.IsZero(), i == 0 && !o.to.IsZero():
			continue // packets that another domain, or the next switch, sends back are dropped
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

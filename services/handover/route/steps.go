package route

import (
	"slices"

	"github.com/sluice-net/sluice/network"
)

// Steps returns the changes that lead from one plan to another, in order; nearly always there is
// one.
//
// From a bicast to its second place there are two: the join stops serving the first place, which
// changes one switch, and then the rules take their final form.
//
// Rules that match a port take precedence over those that do not, and are deleted last. If one of
// the old plan would match packets of the new plan until then, an additional step makes it do what
// the new plan does.
//
// If two switches wait for each other, for example one for packets to the device and the other for
// packets from it, a step adds what is new before anything is changed.
func Steps(old, now Plan) []Step {
	var out []Step
	if old.Bicast() && len(now.want.Places) == 1 && now.want.Places[0] == old.want.Places[1] && old.branchIntact(now.top.Value()) {
		c := old.cutOver()
		out = append(out, Step{Plan: c, Waves: Waves(old, c), Settle: true})
		old = c
	}
	if q, some := now.withOverrides(&old); some {
		out = append(out, change(&old, &q)...)
		old = q
	}
	return append(out, change(&old, &now)...)
}

// change returns the steps from one plan to another. If there is no safe order it goes through a
// plan that has the rules of both.
func change(old, now *Plan) []Step {
	direct, safe := waves(old, now, true)
	if safe {
		return []Step{{Plan: *now, Waves: direct}}
	}
	both := old.merged(now)
	adding, first := waves(old, &both, true)
	changing, second := waves(&both, now, true)
	if first && second {
		return []Step{{Plan: both, Waves: adding}, {Plan: *now, Waves: changing}}
	}
	return []Step{{Plan: *now, Waves: direct}}
}

// merged returns the old plan with the entries that only the new plan has.
func (p *Plan) merged(now *Plan) Plan {
	q := *p
	q.top = now.top
	q.entries = relinked(slices.Clone(p.entries), now.top.Value())
	for _, e := range now.entries {
		if findEntry(p.at(e.sw), &e) == nil {
			q.entries = append(q.entries, e)
		}
	}
	q.order = slices.Clone(now.order)
	q.buildProgram()
	return q
}

// branchIntact reports whether the links of the branch are still there.
func (p *Plan) branchIntact(top *network.Topology) bool {
	for i, h := range p.Branch[:len(p.Branch)-1] {
		next := network.PortRef{Switch: p.Branch[i+1].Switch, Port: p.Branch[i+1].In}
		if top == nil {
			break
		}
		if l, ok := top.LinkFrom(network.PortRef{Switch: h.Switch, Port: h.Out}); !ok || l.To != next {
			return false
		}
	}
	return true
}

// cutOver returns a bicast whose join has stopped serving the first place: all packets go along
// the branch.
func (p *Plan) cutOver() Plan {
	c := *p
	c.want.Places = p.want.Places[1:]
	c.Join, c.Branch = 0, nil
	c.Path = nil
	for _, h := range p.Path {
		if h.Switch == p.Join {
			break
		}
		c.Path = append(c.Path, h)
	}
	c.Path = append(c.Path, p.Branch...)
	c.entries = slices.Clone(p.entries)
	for i := range c.entries {
		e := &c.entries[i]
		if e.sw == p.Join && !e.up && e.n == 2 {
			e.outs, e.n = [2]out{e.outs[1]}, 1
		}
	}
	c.order = slices.Clone(p.order)
	c.buildProgram()
	return c
}

// withOverrides returns the plan together with those rules of the old one that would match its
// packets, changed to do what the plan does. It returns false if there are none.
func (p *Plan) withOverrides(old *Plan) (Plan, bool) {
	q := *p
	q.entries = slices.Clone(p.entries)
	for _, e := range old.entries {
		if e.up || e.in == 0 || findEntry(p.at(e.sw), &e) != nil || !p.arrives(&e) {
			continue
		}
		all := findEntry(p.at(e.sw), &entry{})
		if all == nil {
			continue
		}
		turned := *all
		turned.in = e.in
		q.entries = append(q.entries, turned)
	}
	if len(q.entries) == len(p.entries) {
		return Plan{}, false
	}
	q.order = slices.Clone(p.order)
	q.buildProgram()
	return q, true
}

// arrives reports whether packets to the device come in by the port of an entry.
func (p *Plan) arrives(at *entry) bool {
	for _, r := range p.want.Borders {
		if r.At.Switch == at.sw && r.At.Port == at.in {
			return true
		}
	}
	for i := range p.entries {
		e := &p.entries[i]
		if !e.up && slices.ContainsFunc(e.outs[:e.n], func(o out) bool { return o.to.Switch == at.sw && o.to.Port == at.in }) {
			return true
		}
	}
	return false
}

package route

import (
	"slices"

	"github.com/sluice-net/sluice/network"
)

// Steps are the changes that lead from one plan to another, in order; nearly always
// it is one.
//
// From a bicast to its second place they are two: the join stops serving the first
// place, which is a change of one switch, and then the rules take their final form.
//
// Rules that tell packets by their port win over those that do not, and are deleted
// last. Where one of the old plan would catch packets of the new plan until then, a
// step before the last makes it do what the new plan does.
//
// Where two switches wait for each other, as one for packets to the device and the
// other for packets from it, a step adds what is new before anything is changed.
func Steps(old, now Plan) []Step {
	var out []Step
	if old.Bicast() && len(now.want.Places) == 1 && now.want.Places[0] == old.want.Places[1] && old.carries(now.top.Value()) {
		c := old.cut()
		out = append(out, Step{Plan: c, Waves: Waves(old, c), Settle: true})
		old = c
	}
	if q, some := now.over(&old); some {
		out = append(out, change(&old, &q)...)
		old = q
	}
	return append(out, change(&old, &now)...)
}

// change goes from one plan to another, by way of what both have where there is no
// safe order else.
func change(old, now *Plan) []Step {
	direct, safe := waves(old, now, true)
	if safe {
		return []Step{{Plan: *now, Waves: direct}}
	}
	both := old.and(now)
	adding, first := waves(old, &both, true)
	changing, second := waves(&both, now, true)
	if first && second {
		return []Step{{Plan: both, Waves: adding}, {Plan: *now, Waves: changing}}
	}
	return []Step{{Plan: *now, Waves: direct}}
}

// and is the old plan with what is new in another.
func (p *Plan) and(now *Plan) Plan {
	q := *p
	q.top = now.top
	q.entries = rewired(slices.Clone(p.entries), now.top.Value())
	for _, e := range now.entries {
		if among(p.at(e.sw), &e) == nil {
			q.entries = append(q.entries, e)
		}
	}
	q.order = slices.Clone(now.order)
	q.finish()
	return q
}

// carries reports whether the links of the branch are still there.
func (p *Plan) carries(top *network.Topology) bool {
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

// cut is a bicast whose join has stopped serving the first place: everything goes
// by the branch.
func (p *Plan) cut() Plan {
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
	c.finish()
	return c
}

// over is the plan with those rules of the old one, that would catch its packets,
// turned to its own ways. It is false if there are none.
func (p *Plan) over(old *Plan) (Plan, bool) {
	q := *p
	q.entries = slices.Clone(p.entries)
	for _, e := range old.entries {
		if e.up || e.in == 0 || among(p.at(e.sw), &e) != nil || !p.arrives(&e) {
			continue
		}
		all := among(p.at(e.sw), &entry{})
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
	q.finish()
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

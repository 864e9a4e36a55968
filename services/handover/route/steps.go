package route

import (
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Steps returns the changes that lead from one plan to another, in order; nearly always there is
// one.
//
// From a bicast to its second place there are two: the join stops serving the first place, which
// changes one switch, and then the rules take their final form.
//
// Rules that match a port take precedence over those that do not, and are deleted last. If such a rule
// of the old plan would match packets of the new plan until then, an additional step gives the rule the
// actions of the new plan.
//
// Two switches may have to wait for each other, for example one for packets to the device and the
// other for packets from it. Then a step adds the new rules before any rule is changed.
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

// change returns the steps from one plan to another. If there is no safe order for a single step, but
// one by way of a plan that has the rules of both, it returns two steps.
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

// merged returns the old plan p, with the additional entries that only the new plan now has.
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

// cutOver returns the plan of a bicast after its join has stopped serving the first place: all packets
// go along the branch.
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

// withOverrides returns the plan, and those rules of the old plan that match a port and would match
// packets of the plan. These rules get the actions of the plan. It returns false if there are none.
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

// Waves returns the consistent order in which the switches of a change are written: all switches
// of a wave at once, the next wave when all have confirmed. Rules are deleted after the last wave.
// A change that only deletes has no waves, but the slice is not nil. An empty old plan stands for
// a first attachment.
func Waves(old, now Plan) [][]openflow.DatapathID {
	w, _ := waves(&old, &now, true)
	return w
}

// Burst returns the fastest order in which no packet loops. Packets may be lost until all switches
// have their rules, as if the device had left its old place already. In most cases the order is a
// single wave.
func Burst(old, now Plan) [][]openflow.DatapathID {
	w, _ := waves(&old, &now, false)
	return w
}

// Inward returns an order for a plan when it is not known which rules the switches have: one
// switch after the other, those nearest to the device first. So a switch forwards packets to the
// device only to switches that have their new rules already. There is one exception: with several
// borders, a branch may pass switches that send packets to its join.
func Inward(now Plan) [][]openflow.DatapathID {
	out := make([][]openflow.DatapathID, len(now.order))
	for i, sw := range now.order {
		out[i] = []openflow.DatapathID{sw}
	}
	return out
}

// waves puts into each wave every switch that can be written safely together with those already in
// it, those nearest to the device first. It returns false if there was no safe order, so that one wave
// is not safe.
func waves(old, now *Plan, lossless bool) (out [][]openflow.DatapathID, safe bool) {
	u := newUpdate(old, now)
	var rest []*site
	for i := range u.sites {
		if u.sites[i].written() {
			rest = append(rest, &u.sites[i])
		}
	}
	out, safe = [][]openflow.DatapathID{}, true
	for len(rest) > 0 {
		var wave, later []*site
		for _, s := range rest {
			s.phase = during
			if u.safe(lossless) {
				wave = append(wave, s)
				continue
			}
			s.phase = before
			later = append(later, s)
		}
		if len(wave) == 0 { // no switch is safe: continue with the one nearest to the device
			wave, later, safe = rest[:1], rest[1:], false
		}
		var ids []openflow.DatapathID
		for _, s := range wave {
			s.phase = after
			ids = append(ids, s.sw)
		}
		out, rest = append(out, ids), later
	}
	return out, safe
}

// Compare returns the switches and the parts of the paths that a change of plans changes.
func Compare(old, now Plan) Change {
	var c Change
	for _, s := range newUpdate(&old, &now).sites {
		switch {
		case s.written():
			c.Written = append(c.Written, s.sw)
		case s.cleared():
			c.Cleared = append(c.Cleared, s.sw)
		}
	}
	if now.Bicast() {
		c.Join, c.Branch = now.Join, now.Branch
		return c
	}
	c.Branch, c.Gone = now.Path, old.Path
	if len(old.Path) == 0 {
		return c
	}
	if entered := now.pathFrom(old.Egress.At); len(entered) > 0 {
		c.Branch = entered
	}
	common := 0
	for common < min(len(c.Branch), len(c.Gone)) && c.Branch[common].Switch == c.Gone[common].Switch && c.Branch[common].In == c.Gone[common].In {
		common++
	}
	if common > 0 {
		c.Join = c.Branch[common-1].Switch
		c.Branch, c.Gone = c.Branch[common-1:], c.Gone[common-1:]
	}
	return c
}

// pathFrom returns the path of packets to the device that enter at a port.
func (p *Plan) pathFrom(at network.PortRef) []network.Hop {
	var hops []network.Hop
	var mac openflow.MAC
	for range p.order {
		s := site{now: p.at(at.Switch)}
		e := s.find(false, at.Port, mac, true)
		if e == nil {
			return nil
		}
		o := &e.outs[0]
		hops = append(hops, network.Hop{Switch: at.Switch, In: at.Port, Out: o.port})
		mac = o.carriedMAC(false, mac)
		if at = o.to; at.IsZero() {
			return hops
		}
	}
	return nil
}

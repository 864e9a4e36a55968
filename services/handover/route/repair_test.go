package route

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
)

// recabled removes links from a topology and adds new ones, some of them at ports that had led
// elsewhere.
func recabled(t *rapid.T, top *network.Topology) *network.Topology {
	links := slices.Clone(top.Links)
	for i := range rapid.IntRange(1, 3).Draw(t, "changes") {
		n := len(top.Switches)
		var gone network.Link
		if len(links) > 0 && rapid.Bool().Draw(t, "cut") {
			gone = rapid.SampledFrom(links).Draw(t, "link")
			links = slices.DeleteFunc(links, func(l network.Link) bool { return l == gone || l.From == gone.To && l.To == gone.From })
		}
		a, b := rapid.IntRange(1, n).Draw(t, "a"), rapid.IntRange(1, n).Draw(t, "b")
		if a == b || rapid.Bool().Draw(t, "nothing new") {
			continue
		}
		x, y := ref(a, 300+i), ref(b, 350+i)
		if !gone.From.IsZero() {
			x = gone.From
		}
		links = append(links, network.Link{From: x, To: y}, network.Link{From: y, To: x})
	}
	return topology.New(2, top.Switches, links)
}

// While rules are adapted to a changed network, no packet loops, and a device that still gets
// packets at its first place continues to get them.
func TestRepairHarmsNobodyWhoIsServed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := anyTopology(t)
		want := Want{IP: device, Home: home, Borders: anyBorders(t, top)}
		want.Places = []Place{anyEdge(t, top)}
		if rapid.Bool().Draw(t, "bicast") {
			want.Places = append(want.Places, anyEdge(t, top))
		}
		old, err := NewPlan(top, want)
		unlessUnreachable(t, err)
		changed := recabled(t, top)
		if rapid.Bool().Draw(t, "and a move") {
			want.Places = []Place{anyEdge(t, top)}
		}
		now, err := NewPlan(changed, want)
		if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrInvalid) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range Steps(old, now) {
			repair(t, changed, &old, &step, &now)
			old = step.Plan
		}
		steady(t, changed, &now)
	})
}

func repair(t *rapid.T, top *network.Topology, old *Plan, step *Step, end *Plan) {
	before, alone := load(top, old), load(top, old.withoutBranch())
	served, circling := map[Border]bool{}, map[network.PortRef]bool{}
	for _, r := range slices.Concat(old.want.Borders, step.Plan.want.Borders) {
		_, err := before.send(r.At, down())
		circling[r.At] = err != nil
		// A place that gets packets only because the branch to the other now leads there is served
		// by chance.
		got, strays := alone.send(r.At, down())
		served[r] = err == nil && strays == nil && old.want.Places[0].count(got) == 1 && slices.Contains(common(old, &step.Plan), r) && !slices.Contains(end.Unreached, r)
	}
	for _, p := range slices.Concat(old.served(), step.Plan.served()) {
		_, err := before.send(p.At, up(p))
		circling[p.At] = err != nil
	}
	writing, deleting := states(t, step, losing(old, &step.Plan))
	for _, s := range slices.Concat(writing, deleting) {
		w := s.world(top, old, &step.Plan)
		for _, r := range slices.Concat(old.want.Borders, step.Plan.want.Borders) {
			got, err := w.send(r.At, down())
			if err != nil && !circling[r.At] {
				t.Fatalf("%v: from border %v: %v", s, r.At, err)
			}
			if served[r] && !arrives(got, slices.Concat(old.served(), step.Plan.served())) {
				t.Fatalf("%v: from border %v nothing arrives any more", s, r.At)
			}
		}
		for _, p := range slices.Concat(old.served(), step.Plan.served()) {
			if _, err := w.send(p.At, up(p)); err != nil && !circling[p.At] {
				t.Fatalf("%v: from %v: %v", s, p, err)
			}
		}
	}
}

// withoutBranch returns a plan that serves the first place only, along the same paths.
func (p *Plan) withoutBranch() *Plan {
	q := *p
	q.entries = slices.Clone(p.entries)
	for i := range q.entries {
		q.entries[i].n = min(q.entries[i].n, 1)
	}
	q.order = slices.Clone(p.order)
	q.buildProgram()
	return &q
}

func arrives(got []arrival, places []Place) bool {
	return slices.ContainsFunc(places, func(p Place) bool { return p.count(got) > 0 })
}

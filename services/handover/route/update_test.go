package route

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

func ref(s, p int) network.PortRef {
	return network.PortRef{Switch: openflow.DatapathID(s), Port: uint32(p)}
}

// anyTopology draws up to eight switches with any links, including parallel ones and some with one
// direction only.
func anyTopology(t *rapid.T) *network.Topology {
	n := rapid.IntRange(1, 8).Draw(t, "switches")
	var ids []openflow.DatapathID
	for s := 1; s <= n; s++ {
		ids = append(ids, openflow.DatapathID(s))
	}
	var links []network.Link
	for i := range rapid.IntRange(0, 2*n).Draw(t, "links") {
		a, b := rapid.IntRange(1, n).Draw(t, "a"), rapid.IntRange(1, n).Draw(t, "b")
		if a == b {
			continue
		}
		x, y := ref(a, 2*i+1), ref(b, 2*i+2)
		links = append(links, network.Link{From: x, To: y})
		if rapid.IntRange(0, 19).Draw(t, "one way") > 0 {
			links = append(links, network.Link{From: y, To: x})
		}
	}
	return topology.New(1, ids, links)
}

func anyBorders(t *rapid.T, top *network.Topology) []Border {
	var out []Border
	for i := range rapid.IntRange(1, 3).Draw(t, "borders") {
		out = append(out, Border{At: ref(rapid.IntRange(1, len(top.Switches)).Draw(t, "border"), 100+i)})
	}
	return out
}

// anyPlace draws an edge port, or sometimes a border. There are few edge ports on
// each switch, so that one is often drawn again with another address.
func anyPlace(t *rapid.T, top *network.Topology, borders []Border) Place {
	if rapid.IntRange(0, 9).Draw(t, "elsewhere") == 0 {
		return Place{At: rapid.SampledFrom(borders).Draw(t, "peer").At}
	}
	return anyEdge(t, top)
}

func anyEdge(t *rapid.T, top *network.Topology) Place {
	mac := home
	mac[5] = byte(rapid.IntRange(0, 2).Draw(t, "interface"))
	at := ref(rapid.IntRange(1, len(top.Switches)).Draw(t, "edge"), 200+rapid.IntRange(0, 1).Draw(t, "port"))
	return Place{At: at, MAC: mac}
}

// state is a state of the rules while a plan replaces another.
type state struct {
	written map[openflow.DatapathID]bool
	cleared map[openflow.DatapathID]bool
}

func (s state) String() string {
	return fmt.Sprintf("written %v, cleared %v", slices.Sorted(maps.Keys(s.written)), slices.Sorted(maps.Keys(s.cleared)))
}

// world returns the network in that state.
func (s state) world(top *network.Topology, old, now *Plan) *world {
	w := load(top, old)
	keep := rules(now)
	for _, r := range now.Program.Rules {
		if s.written[r.Switch] {
			w.write(r)
		}
	}
	for k, r := range rules(old) {
		if _, kept := keep[k]; !kept && s.cleared[r.Switch] {
			w.remove(r)
		}
	}
	return w
}

// subsets yields every subset of few switches, and drawn ones of many.
func subsets(t *rapid.T, of []openflow.DatapathID) [][]openflow.DatapathID {
	var out [][]openflow.DatapathID
	pick := func(bits int) {
		var s []openflow.DatapathID
		for i, sw := range of {
			if bits&(1<<i) != 0 {
				s = append(s, sw)
			}
		}
		out = append(out, s)
	}
	if len(of) <= 4 {
		for bits := range 1 << len(of) {
			pick(bits)
		}
		return out
	}
	for range 8 {
		pick(rapid.IntRange(0, 1<<len(of)-1).Draw(t, "subset"))
	}
	return out
}

// states yields the states that a step goes through. The last is the end.
func states(t *rapid.T, step *Step, cleared []openflow.DatapathID) (writing, deleting []state) {
	done := map[openflow.DatapathID]bool{}
	with := func(base map[openflow.DatapathID]bool, some []openflow.DatapathID) map[openflow.DatapathID]bool {
		m := maps.Clone(base)
		for _, sw := range some {
			m[sw] = true
		}
		return m
	}
	for _, wave := range step.Waves {
		for _, some := range subsets(t, wave) {
			writing = append(writing, state{written: with(done, some)})
		}
		done = with(done, wave)
	}
	for _, some := range append(subsets(t, cleared), cleared) {
		deleting = append(deleting, state{written: done, cleared: with(map[openflow.DatapathID]bool{}, some)})
	}
	return writing, deleting
}

// losing returns the switches that hold rules of old that now does not have.
func losing(old, now *Plan) []openflow.DatapathID {
	keep := rules(now)
	var out []openflow.DatapathID
	for k, r := range rules(old) {
		if _, kept := keep[k]; !kept && !slices.Contains(out, r.Switch) {
			out = append(out, r.Switch)
		}
	}
	slices.Sort(out)
	return out
}

// unlessUnreachable skips a draw without a path.
func unlessUnreachable(t *rapid.T, err error) {
	if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrInvalid) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A packet from any border, or from the device, is served in every state of any move.
func TestNoStateLosesOrLoops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := anyTopology(t)
		want := Want{IP: device, Home: home, Borders: anyBorders(t, top)}
		place := func() Place { return anyPlace(t, top, want.Borders) }
		want.Places = []Place{place()}
		old, err := NewPlan(top, want)
		unlessUnreachable(t, err)
		steady(t, top, &old)
		for range rapid.IntRange(1, 4).Draw(t, "moves") {
			next := want
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				next.Places = []Place{place()}
			case 1: // a second place besides the first
				next.Places = []Place{want.Places[0], place()}
			case 2: // on to the last place, or back to the first
				next.Places = []Place{rapid.SampledFrom(want.Places).Draw(t, "stay")}
			default:
				next.Places = want.Places
				next.Egress = nil
				if rapid.Bool().Draw(t, "egress") {
					by := rapid.SampledFrom(want.Borders).Draw(t, "by").At
					next.Egress = &by
				}
			}
			now, err := NewPlan(top, next)
			if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrInvalid) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range Steps(old, now) {
				move(t, top, &old, &step)
				old = step.Plan
			}
			want = next
			want.Places = now.want.Places
			if now.Fallback != "" {
				want.Places = want.Places[:1]
			}
			steady(t, top, &now)
		}
	})
}

// move checks every state of one step.
func move(t *rapid.T, top *network.Topology, old *Plan, step *Step) {
	now := &step.Plan
	writing, deleting := states(t, step, losing(old, now))
	for _, s := range writing {
		checkDown(t, s, s.world(top, old, now), old, now)
		checkUp(t, s, s.world(top, old, now), old.served(), old, now)
	}
	for _, s := range deleting {
		checkDown(t, s, s.world(top, old, now), old, now)
		checkUp(t, s, s.world(top, old, now), now.served(), old, now)
	}
	end := deleting[len(deleting)-1].world(top, old, now)
	want := load(top, now)
	for sw, table := range want.tables {
		if got := end.tables[sw].Entries(); len(got) != len(table.Entries()) {
			t.Fatalf("switch %v ends with %v, not %v", sw, got, table.Entries())
		}
	}
}

// served returns the places that the plan serves.
func (p *Plan) served() []Place {
	if p.Bicast() {
		return p.want.Places
	}
	return p.want.Places[:1]
}

// common returns the borders that both plans serve.
func common(old, now *Plan) []Border {
	return slices.DeleteFunc(slices.Clone(old.want.Borders), func(r Border) bool {
		return slices.Contains(old.Unreached, r) || slices.Contains(now.Unreached, r) || !slices.Contains(now.want.Borders, r)
	})
}

func checkDown(t *rapid.T, s state, w *world, old, now *Plan) {
	t.Helper()
	for _, r := range common(old, now) {
		got, err := w.send(r.At, down())
		if err != nil {
			t.Fatalf("%v: from border %v: %v", s, r.At, err)
		}
		places := slices.Clone(old.served())
		for _, p := range now.served() {
			if !slices.Contains(places, p) {
				places = append(places, p)
			}
		}
		total := 0
		for _, p := range places {
			n := p.count(got)
			total += n
			always := slices.Contains(old.served(), p) && slices.Contains(now.served(), p)
			if n > 1 || always && n != 1 {
				t.Fatalf("%v: from border %v: %v gets %d copies: %v", s, r.At, p, n, got)
			}
		}
		if total != len(got) || total == 0 || !old.Bicast() && !now.Bicast() && total != 1 {
			t.Fatalf("%v: from border %v: arrives as %v, the places are %v", s, r.At, got, places)
		}
	}
}

func checkUp(t *rapid.T, s state, w *world, served []Place, old, now *Plan) {
	t.Helper()
	for _, p := range append(slices.Clone(served), now.served()...) {
		got, err := w.send(p.At, up(p))
		if err != nil {
			t.Fatalf("%v: from %v: %v", s, p, err)
		}
		for _, a := range got {
			isBorder := slices.ContainsFunc(slices.Concat(old.want.Borders, now.want.Borders), func(r Border) bool { return r.At == a.at })
			if !isBorder || a.src != home {
				t.Fatalf("%v: from %v: leaves as %v", s, p, a)
			}
		}
		if slices.Contains(served, p) && len(got) != 1 {
			t.Fatalf("%v: from %v: leaves as %v", s, p, got)
		}
	}
}

// steady checks a plan at rest: each place gets each packet once, along the hops of the plan, and
// a stranger at the device's port can send nothing out.
func steady(t *rapid.T, top *network.Topology, p *Plan) {
	t.Helper()
	w := load(top, p)
	for _, r := range p.want.Borders {
		if slices.Contains(p.Unreached, r) {
			continue
		}
		got, err := w.send(r.At, down())
		if err != nil || len(got) != len(p.served()) {
			t.Fatalf("from border %v: %v, %v, to be served: %v", r.At, got, err, p.served())
		}
		for _, pl := range p.served() {
			if pl.count(got) != 1 {
				t.Fatalf("from border %v: %v, %v has no copy", r.At, got, pl)
			}
		}
	}
	for _, pl := range p.served() {
		got, err := w.send(pl.At, up(pl))
		if err != nil || len(got) != 1 || got[0].src != home {
			t.Fatalf("from %v: %v, %v", pl, got, err)
		}
		if p.want.Egress != nil && got[0].at != *p.want.Egress {
			t.Fatalf("from %v: %v, not by %v", pl, got, *p.want.Egress)
		}
		if got, _ := w.send(pl.At, ip(stranger, gateway, device, outside)); !pl.MAC.IsZero() && len(got) != 0 {
			t.Fatalf("a stranger at %v sends as the device: %v", pl, got)
		}
	}
	if hops := p.pathFrom(p.Egress.At); !p.Bicast() && !slices.Equal(hops, p.Path) {
		t.Fatalf("packets go %v, the path is said to be %v", hops, p.Path)
	}
}

package route

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// wires returns a topology of bidirectional links, each given by its two ends.
func wires(switches int, ends ...network.PortRef) *network.Topology {
	var ids []openflow.DatapathID
	for s := 1; s <= switches; s++ {
		ids = append(ids, openflow.DatapathID(s))
	}
	var links []network.Link
	for i := 0; i < len(ends); i += 2 {
		links = append(links, network.Link{From: ends[i], To: ends[i+1]}, network.Link{From: ends[i+1], To: ends[i]})
	}
	return topology.New(1, ids, links)
}

// fork returns border 1, below it 2, and below that the edges 3 and 4; 5 is connected to 1.
func fork() *network.Topology {
	return wires(5, ref(1, 1), ref(2, 1), ref(2, 2), ref(3, 1), ref(2, 3), ref(4, 1), ref(1, 2), ref(5, 1))
}

var (
	uplink = Border{At: ref(1, 100)}
	mac3   = openflow.MAC{2, 0, 0, 0, 7, 3}
	mac4   = openflow.MAC{2, 0, 0, 0, 7, 4}
	at3    = Place{At: ref(3, 9), MAC: mac3}
	at4    = Place{At: ref(4, 9), MAC: mac4}
)

func want(places ...Place) Want {
	return Want{IP: device, Home: home, Borders: []Border{uplink}, Places: places}
}

func make1(t *testing.T, top *network.Topology, w Want) Plan {
	t.Helper()
	p, err := NewPlan(top, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRules(t *testing.T) {
	p := make1(t, fork(), want(at3))
	var got []string
	for _, r := range p.Program.Rules {
		if r.Stage != network.StageDevice || r.Idle != 0 || r.Hard != 0 {
			t.Errorf("%+v", r)
		}
		s := r.Switch.String()[15:] + " " + r.Match.String()
		for _, a := range r.Actions {
			s += " " + a.String()
		}
		got = append(got, s)
	}
	down, from := openflow.MustMatch(openflow.EthType(0x800), openflow.IPDst(device)), openflow.IPSrc(device)
	match := func(m openflow.Match, more ...openflow.OXM) string {
		m, err := m.With(more...)
		if err != nil {
			t.Fatal(err)
		}
		return m.String()
	}
	ipv4 := openflow.MustMatch(openflow.EthType(0x800))
	toEdge := " " + openflow.SetField(openflow.EthDst(mac3)).String() + " "
	wanted := []string{
		"3 " + match(ipv4, openflow.InPort(9), openflow.EthSrc(mac3), from) + " " + openflow.SetField(openflow.EthSrc(home)).String() + " " + openflow.Output(1).String(),
		"2 " + match(ipv4, openflow.InPort(2), from) + " " + openflow.Output(1).String(),
		"1 " + match(ipv4, openflow.InPort(1), from) + " " + openflow.Output(100).String(),
		"1 " + match(down) + " " + openflow.Output(1).String(),
		"2 " + match(down) + " " + openflow.Output(2).String(),
		"3 " + match(down) + toEdge + openflow.Output(9).String(),
		"3 " + match(down, openflow.InPort(9)) + toEdge + openflow.Output(openflow.PortInPort).String(),
	}
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("rules\n%q\nwant\n%q", got, wanted)
	}
	if !slices.Equal(p.Path, []network.Hop{{Switch: 1, In: 100, Out: 1}, {Switch: 2, In: 1, Out: 2}, {Switch: 3, In: 1, Out: 9}}) {
		t.Errorf("path %v", p.Path)
	}
	if !slices.Equal(p.Up, []network.Hop{{Switch: 3, In: 9, Out: 1}, {Switch: 2, In: 2, Out: 1}, {Switch: 1, In: 1, Out: 100}}) {
		t.Errorf("up %v", p.Up)
	}
}

func waveSets(waves [][]openflow.DatapathID) (out [][]openflow.DatapathID) {
	for _, w := range waves {
		w = slices.Clone(w)
		slices.Sort(w)
		out = append(out, w)
	}
	return out
}

func equalWaves(a, b [][]openflow.DatapathID) bool {
	return slices.EqualFunc(a, b, slices.Equal[[]openflow.DatapathID])
}

// A move on a tree writes the new branch, then the join, and clears the rest.
func TestMoveOnATree(t *testing.T) {
	top := fork()
	old, now := make1(t, top, want(at3)), make1(t, top, want(at4))
	ids := func(s ...openflow.DatapathID) []openflow.DatapathID { return s }
	if got := waveSets(Waves(old, now)); !equalWaves(got, [][]openflow.DatapathID{ids(4), ids(2)}) {
		t.Errorf("waves %v", got)
	}
	if got := waveSets(Burst(old, now)); !equalWaves(got, [][]openflow.DatapathID{ids(2, 4)}) {
		t.Errorf("burst %v", got)
	}
	c := Compare(old, now)
	if c.Join != 2 || !slices.Equal(c.Cleared, ids(3)) || len(c.Written) != 2 || len(c.Branch) != 2 || len(c.Gone) != 2 {
		t.Errorf("change %+v", c)
	}
	both := make1(t, top, want(at3, at4))
	if both.Join != 2 || !both.Bicast() || both.Fallback != "" {
		t.Errorf("join %v, branch %v, fallback %q", both.Join, both.Branch, both.Fallback)
	}
	steps := Steps(both, now)
	if len(steps) != 2 || !equalWaves(steps[0].Waves, [][]openflow.DatapathID{ids(2)}) {
		t.Errorf("%d steps, the first %v", len(steps), steps[0].Waves)
	}
	first := waveSets(Waves(Plan{}, now))
	if !equalWaves(first, [][]openflow.DatapathID{ids(1, 2, 4)}) {
		t.Errorf("first attachment %v", first)
	}
	if got := Waves(now, now); len(got) != 0 {
		t.Errorf("nothing changes, but %v", got)
	}
	if got := Waves(now, Plan{}); len(got) != 0 {
		t.Errorf("detachment only deletes, but %v", got)
	}
}

// If the paths of two borders to the new place use links in the old path's opposite direction, the
// switches change one after the other, those nearest to the device first.
func TestTurningAChain(t *testing.T) {
	// 1 - 2 - 3 - 4, with a border on 2 and one on 3; the device moves from 1 to 4.
	top := wires(4, ref(1, 1), ref(2, 1), ref(2, 2), ref(3, 1), ref(3, 2), ref(4, 1))
	w := want(Place{At: ref(1, 9), MAC: mac3})
	w.Borders = []Border{{At: ref(2, 100)}, {At: ref(3, 100)}}
	old := make1(t, top, w)
	w.Places = []Place{{At: ref(4, 9), MAC: mac4}}
	now := make1(t, top, w)
	waves := Waves(old, now)
	at := func(sw openflow.DatapathID) int {
		return slices.IndexFunc(waves, func(w []openflow.DatapathID) bool { return slices.Contains(w, sw) })
	}
	if len(waves) != 3 || at(4) != 0 || at(3) != 1 || at(2) != 2 {
		t.Errorf("waves %v", waves)
	}
	// A burst loses packets, but none loops: a switch sends nothing back.
	if b := Burst(old, now); len(b) != 1 {
		t.Errorf("burst %v", b)
	}
}

func TestPlanRefuses(t *testing.T) {
	top := fork()
	bad := func(change func(*Want)) Want {
		w := want(at3)
		change(&w)
		return w
	}
	for name, c := range map[string]struct {
		want Want
		err  error
	}{
		"no place":           {want(), ErrInvalid},
		"three places":       {want(at3, at4, Place{At: ref(5, 9), MAC: mac3}), ErrInvalid},
		"IPv6":               {bad(func(w *Want) { w.IP = netip.MustParseAddr("2001:db8::1") }), ErrInvalid},
		"no address":         {bad(func(w *Want) { w.IP = netip.Addr{} }), ErrInvalid},
		"no home":            {bad(func(w *Want) { w.Home = openflow.MAC{} }), ErrInvalid},
		"group address":      {bad(func(w *Want) { w.Places[0].MAC = openflow.MAC{1} }), ErrInvalid},
		"no borders":         {bad(func(w *Want) { w.Borders = nil }), ErrInvalid},
		"only its own place": {bad(func(w *Want) { w.Places[0].At = uplink.At }), ErrInvalid},
		"strange egress":     {bad(func(w *Want) { at := ref(5, 100); w.Egress = &at }), ErrInvalid},
		"place on a link":    {want(Place{At: ref(2, 1), MAC: mac3}), ErrInvalid},
		"reserved port":      {want(Place{At: network.PortRef{Switch: 2, Port: openflow.PortLocal}, MAC: mac3}), ErrInvalid},
		"switch not there":   {want(Place{At: ref(9, 1), MAC: mac3}), ErrUnreachable},
		"border not there":   {bad(func(w *Want) { w.Borders = []Border{{At: ref(9, 100)}} }), ErrUnreachable},
	} {
		if _, err := NewPlan(top, c.want); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
	}
}

// A border that cannot be reached at the moment is left out and reported.
func TestPartOfTheRoots(t *testing.T) {
	w := want(at3)
	far := Border{At: ref(9, 100), Peer: "b"}
	w.Borders = append(w.Borders, far, uplink)
	p := make1(t, fork(), w)
	if !slices.Equal(p.Unreached, []Border{far}) || p.Egress != uplink {
		t.Errorf("unreached %v, egress %v", p.Unreached, p.Egress)
	}
	w.Egress = &far.At
	if _, err := NewPlan(fork(), w); !errors.Is(err, ErrUnreachable) {
		t.Errorf("an egress out of reach: %v", err)
	}
	p = make1(t, fork(), want(at3, Place{At: ref(9, 1), MAC: mac4}))
	if p.Bicast() || p.Fallback == "" {
		t.Errorf("bicast to a switch that is not there: %v, %q", p.Branch, p.Fallback)
	}
}

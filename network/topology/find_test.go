package topology

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

const mbit = 1_000_000

// trial is a small random network with every path from switch 1 to switch 2.
type trial struct {
	t     *Topology
	paths [][]Link
}

func newTrial(r *rand.Rand) *trial {
	switches := make([]openflow.DatapathID, 2+r.IntN(5))
	for i := range switches {
		switches[i] = openflow.DatapathID(i + 1)
	}
	links := make([]Link, r.IntN(15))
	for i := range links {
		a, b := switches[r.IntN(len(switches))], switches[r.IntN(len(switches))]
		links[i] = Link{From: PortRef{a, uint32(10 + i)}, To: PortRef{b, uint32(100 + i)}}
		if l := &links[i]; r.IntN(10) > 0 {
			l.Latency = time.Duration(1+r.IntN(5)) * time.Millisecond
			l.Jitter = time.Duration(r.IntN(5)) * 100 * time.Microsecond
			l.Loss = float64(r.IntN(4)) * 0.01
		}
		if r.IntN(10) > 0 {
			links[i].Capacity, links[i].Used = 10*mbit, uint64(r.IntN(11))*mbit
		}
	}
	x := &trial{t: New(1, switches, links)}
	x.walk(1, nil, map[openflow.DatapathID]bool{})
	return x
}

func (x *trial) walk(at openflow.DatapathID, path []Link, seen map[openflow.DatapathID]bool) {
	if at == 2 {
		x.paths = append(x.paths, slices.Clone(path))
		return
	}
	seen[at] = true
	for _, l := range x.t.LinksFrom(at) {
		if !seen[l.To.Switch] {
			x.walk(l.To.Switch, append(path, l), seen)
		}
	}
	seen[at] = false
}

func randomRequest(r *rand.Rand) Request {
	q := Request{Objective: Objective(r.IntN(len(objectiveNames)))}
	if r.IntN(2) == 0 {
		q.MinBandwidth = uint64(r.IntN(8)) * mbit
	}
	if r.IntN(2) == 0 {
		q.MaxDelay = time.Duration(1+r.IntN(12)) * time.Millisecond
	}
	if r.IntN(3) == 0 {
		q.MaxJitter = time.Duration(1+r.IntN(8)) * 100 * time.Microsecond
	}
	if r.IntN(3) == 0 {
		q.MaxLoss = 0.005 + float64(r.IntN(6))*0.01
	}
	if r.IntN(4) == 0 {
		q.Exclude = func(l Link) string {
			if l.From.Port%7 == 0 {
				return "in repair"
			}
			return ""
		}
	}
	if r.IntN(4) == 0 {
		q.Available = func(l Link) uint64 { return l.Available() / 2 }
	}
	return q
}

// worth returns a path's value, smaller being better, and whether the path meets the request.
func worth(q Request, path []Link) (float64, bool) {
	narrow := uint64(math.MaxUint64)
	var delay, jitter, delayOr, jitterOr time.Duration
	arrive := 1.0
	for _, l := range path {
		free := l.Available()
		if q.Available != nil {
			free = q.Available(l)
		}
		if l.Capacity == 0 && (q.MinBandwidth > 0 || q.Objective == ObjectiveWidest) {
			return 0, false
		}
		if q.Exclude != nil && q.Exclude(l) != "" {
			return 0, false
		}
		narrow = min(narrow, free)
		if l.Latency == 0 && l.Jitter == 0 {
			if q.MaxDelay > 0 || q.MaxJitter > 0 {
				return 0, false
			}
			delayOr, jitterOr = delayOr+time.Second, jitterOr+time.Second
		}
		delay, jitter, arrive = delay+l.Latency, jitter+l.Jitter, arrive*(1-l.Loss)
	}
	ok := narrow >= q.MinBandwidth && (q.MaxDelay == 0 || delay <= q.MaxDelay) && (q.MaxJitter == 0 || jitter <= q.MaxJitter) &&
		(q.MaxLoss == 0 || 1-arrive <= q.MaxLoss)
	switch q.Objective {
	case ObjectiveDelay:
		return float64(delay + delayOr), ok
	case ObjectiveJitter:
		return float64(jitter + jitterOr), ok
	case ObjectiveLoss:
		return 1 - arrive, ok
	case ObjectiveWidest:
		return -float64(narrow), ok
	}
	return float64(len(path)), ok
}

func TestFindAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	from, to := PortRef{1, 1}, PortRef{2, 2}
	found := 0
	for range 10_000 {
		x, q := newTrial(r), randomRequest(r)
		best, exists := math.Inf(1), false
		for _, p := range x.paths {
			if v, ok := worth(q, p); ok {
				best, exists = min(best, v), true
			}
		}
		a, err := x.t.Find(from, to, q)
		if err != nil {
			if exists || !errors.Is(err, ErrNoPath) {
				t.Fatalf("%+v: %v, brute force has %v", q, err, best)
			}
			continue
		}
		found++
		links := x.follow(t, a.Path, from, to)
		v, ok := worth(q, links)
		if !exists || !ok || math.Abs(v-best) > 1e-9 || !a.Exact || a.Gap != 0 {
			t.Fatalf("%+v: %+v is worth %v (meets the request: %v), brute force has %v", q, a, v, ok, best)
		}
		checkSums(t, q, a, links)
	}
	if found < 2000 {
		t.Errorf("only %d requests have a path, the test says little", found)
	}
}

// follow checks that links join the hops, and returns the links.
func (x *trial) follow(t *testing.T, p Path, from, to PortRef) (links []Link) {
	t.Helper()
	at := from
	for i, h := range p.Hops {
		if (PortRef{h.Switch, h.In}) != at {
			t.Fatalf("hop %d of %v is not at %v", i, p.Hops, at)
		}
		if i == len(p.Hops)-1 {
			if (PortRef{h.Switch, h.Out}) != to {
				t.Fatalf("%v does not end at %v", p.Hops, to)
			}
			break
		}
		l, ok := x.t.LinkFrom(PortRef{h.Switch, h.Out})
		if !ok {
			t.Fatalf("no link leaves hop %d of %v", i, p.Hops)
		}
		links = append(links, l)
		at = l.To
	}
	return links
}

func checkSums(t *testing.T, q Request, a Answer, links []Link) {
	t.Helper()
	want := Answer{Width: math.MaxUint64}
	arrive := 1.0
	for _, l := range links {
		free := l.Available()
		if q.Available != nil {
			free = q.Available(l)
		}
		want.Width = min(want.Width, free)
		want.Delay, want.Jitter, arrive = want.Delay+l.Latency, want.Jitter+l.Jitter, arrive*(1-l.Loss)
		if l.Latency == 0 && l.Jitter == 0 {
			want.Unmeasured++
		}
	}
	if a.Width != want.Width || a.Delay != want.Delay || a.Jitter != want.Jitter || math.Abs(a.Loss-(1-arrive)) > 1e-12 || a.Unmeasured != want.Unmeasured {
		t.Fatalf("%+v, want %+v with loss %v", a, want, 1-arrive)
	}
}

// TestFindMeetsTheBoundItself checks that two links of 10 % loss, which lose 19 %, are accepted
// if 19 % are allowed, in spite of rounding in the logarithms.
func TestFindMeetsTheBoundItself(t *testing.T) {
	top := New(1, []openflow.DatapathID{1, 2, 3}, []Link{
		{From: ref(1, 2), To: ref(3, 1), Latency: time.Millisecond, Jitter: time.Microsecond, Loss: 0.1, Capacity: 10 * mbit, Used: 6 * mbit},
		{From: ref(3, 2), To: ref(2, 1), Latency: time.Millisecond, Jitter: time.Microsecond, Loss: 0.1, Capacity: 10 * mbit},
	})
	most := Request{MinBandwidth: 4 * mbit, MaxDelay: 2 * time.Millisecond, MaxJitter: 2 * time.Microsecond, MaxLoss: 0.19}
	if a, err := top.Find(ref(1, 9), ref(2, 9), most); err != nil || !a.Exact {
		t.Errorf("%+v, %v", a, err)
	}
	for _, tt := range []struct {
		spoil func(*Request)
		says  string
	}{
		{func(r *Request) { r.MinBandwidth++ }, "not connected (left out: links 1 with less available than asked for)"},
		{func(r *Request) { r.MaxDelay-- }, "the least delay of a path is 2ms, at most 1.999999ms"},
		{func(r *Request) { r.MaxJitter-- }, "the least jitter of a path is 2µs"},
		{func(r *Request) { r.MaxLoss -= 1e-6 }, "the least loss of a path is 19 %, at most 19 %"},
		{func(r *Request) { r.MaxDelay--; r.Objective = ObjectiveDelay }, "the least delay of a path is 2ms"},
	} {
		r := most
		tt.spoil(&r)
		if _, err := top.Find(ref(1, 9), ref(2, 9), r); !errors.Is(err, ErrNoPath) || !strings.Contains(fmt.Sprint(err), tt.says) {
			t.Errorf("%v, want %q", err, tt.says)
		}
	}
}

func TestFindOnOneSwitch(t *testing.T) {
	a, err := square().Find(ref(1, 5), ref(1, 6), Request{MinBandwidth: 1 << 50, MaxDelay: 1, Objective: ObjectiveWidest})
	if err != nil || !slices.Equal(a.Path.Hops, []Hop{{1, 5, 6}}) || a.Width != math.MaxUint64 || !a.Exact {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestFindRefusesNonsense(t *testing.T) {
	for name, tt := range map[string]struct {
		from, to PortRef
		r        Request
	}{
		"from nowhere":      {ref(77, 1), ref(1, 1), Request{}},
		"to nowhere":        {ref(1, 1), ref(77, 1), Request{}},
		"negative delay":    {ref(1, 1), ref(2, 1), Request{MaxDelay: -1}},
		"negative jitter":   {ref(1, 1), ref(2, 1), Request{MaxJitter: -1}},
		"negative limit":    {ref(1, 1), ref(2, 1), Request{Limit: -1}},
		"loss of all":       {ref(1, 1), ref(2, 1), Request{MaxLoss: 1}},
		"loss is no number": {ref(1, 1), ref(2, 1), Request{MaxLoss: math.NaN()}},
		"no such objective": {ref(1, 1), ref(2, 1), Request{Objective: 99}},
	} {
		if _, err := square().Find(tt.from, tt.to, tt.r); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := square().Explain(tt.from, tt.to, tt.r); !errors.Is(err, ErrRequest) {
			t.Errorf("%s, explained: %v", name, err)
		}
	}
}

func TestObjectiveNames(t *testing.T) {
	for _, name := range Objectives() {
		if o, err := ParseObjective(name); err != nil || o.String() != name {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
	if _, err := ParseObjective("cheapest"); err == nil {
		t.Error("cheapest accepted")
	}
}

func TestExplain(t *testing.T) {
	top := square()
	r := Request{MinBandwidth: 11 * mbit, MaxDelay: 50 * time.Millisecond, Exclude: func(l Link) string {
		if l.From == ref(2, 1) {
			return "in repair"
		}
		return ""
	}}
	e, err := top.Explain(ref(1, 100), ref(4, 100), r)
	if err != nil || e.Err != nil || len(e.Edges) != len(top.Links) {
		t.Fatalf("%+v, %v", e, err)
	}
	if !slices.Equal(via(e.Answer.Path), []openflow.DatapathID{1, 2, 4}) {
		t.Errorf("path %v", via(e.Answer.Path))
	}
	for at, want := range map[PortRef]Edge{
		ref(1, 2): {OnPath: true, Available: 1000 * mbit},
		ref(2, 4): {OnPath: true, Available: 900 * mbit},
		ref(1, 3): {Available: 10 * mbit, Out: "10000000 bit/s available, 11000000 asked for"},
		ref(2, 1): {Available: 1000 * mbit, Out: "excluded: in repair"},
	} {
		i := slices.IndexFunc(e.Edges, func(e Edge) bool { return e.Link.From == at })
		if got := e.Edges[i]; got.OnPath != want.OnPath || got.Available != want.Available || got.Out != want.Out {
			t.Errorf("%v: %+v, want %+v", at, got, want)
		}
	}
	e, err = top.Explain(ref(1, 100), ref(4, 100), Request{MaxDelay: time.Millisecond})
	if err != nil || !errors.Is(e.Err, ErrNoPath) {
		t.Fatalf("%v, %v", err, e.Err)
	}
	for _, edge := range e.Edges {
		want := "no path between the two places uses it" // but back
		if edge.Link.From.Switch != 4 && edge.Link.To.Switch != 1 {
			want = "every path over it has a delay of at least "
		}
		if !strings.HasPrefix(edge.Out, want) {
			t.Errorf("%v: %q", edge.Link.From, edge.Out)
		}
	}
}

// TestExplainKeepsWhatPathsUse checks that a link which is part of any path that meets the
// request is not reported as excluded, which includes the links of the path that was found.
func TestExplainKeepsWhatPathsUse(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	used := 0
	for range 3000 {
		x, q := newTrial(r), randomRequest(r)
		e, err := x.t.Explain(PortRef{1, 1}, PortRef{2, 2}, q)
		if err != nil {
			t.Fatal(err)
		}
		outside := map[PortRef]string{}
		for _, edge := range e.Edges {
			outside[edge.Link.From] = edge.Out
			if edge.OnPath && edge.Out != "" {
				t.Fatalf("%v is on the path and out: %s", edge.Link.From, edge.Out)
			}
		}
		for _, p := range x.paths {
			if _, ok := worth(q, p); !ok {
				continue
			}
			used++
			for _, l := range p {
				if why := outside[l.From]; why != "" {
					t.Fatalf("%+v: a path uses %v, which is out: %s", q, l.From, why)
				}
			}
		}
	}
	if used < 1000 {
		t.Errorf("only %d paths, the test says little", used)
	}
}

// TestWidest checks that Widest returns the path that Find returns when all longer paths are
// excluded.
func TestWidest(t *testing.T) {
	cable := func(a, b int, free uint64) []Link {
		return both(ref(a, 10*a+b), ref(b, 10*b+a), 0, 10*mbit, 10*mbit-free)
	}
	top := New(1, []openflow.DatapathID{1, 2, 3, 4, 5}, slices.Concat(cable(1, 2, 3*mbit), cable(2, 5, 9*mbit), cable(1, 3, 5*mbit), cable(3, 5, 4*mbit), cable(3, 4, 9*mbit), cable(4, 5, 9*mbit)))
	for longer, want := range []struct {
		by    string
		width uint64
	}{{"1 3 5", 4 * mbit}, {"1 3 4 5", 5 * mbit}, {"1 3 4 5", 5 * mbit}} {
		p, width, ok := top.Widest(ref(1, 1), ref(5, 1), longer, Link.Available)
		by := ""
		for _, h := range p.Hops {
			by += fmt.Sprintf(" %d", uint64(h.Switch))
		}
		if !ok || strings.TrimSpace(by) != want.by || width != want.width || p.Hops[0].In != 1 || p.Hops[len(p.Hops)-1].Out != 1 {
			t.Errorf("longer by %d: %+v of width %d, %v; want %+v", longer, p, width, ok, want)
		}
	}
	if _, width, ok := top.Widest(ref(1, 1), ref(1, 2), 0, Link.Available); !ok || width != math.MaxUint64 {
		t.Errorf("within a switch: %d, %v", width, ok)
	}
	if _, _, ok := top.Widest(ref(1, 1), ref(9, 1), 0, Link.Available); ok {
		t.Error("there is a path to a switch that is not there")
	}
}

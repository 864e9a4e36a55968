package subflows

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// Each path is the widest of the shortest that those before it leave, unless one that is longer
// by two links at most is twice as wide, on whatever network: every path is tried.
func TestWidestAgainstAllPaths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "switches")
		var switches []openflow.DatapathID
		for i := range n {
			switches = append(switches, openflow.DatapathID(i+1))
		}
		var links []network.Link
		uses := map[network.PortRef]reserve.Use{}
		for i := range rapid.IntRange(1, 10).Draw(t, "links") {
			x, y := rapid.SampledFrom(switches).Draw(t, "from"), rapid.SampledFrom(switches).Draw(t, "to")
			if x == y {
				continue
			}
			ends := [2]network.PortRef{{Switch: x, Port: uint32(100 + i)}, {Switch: y, Port: uint32(100 + i)}}
			capacity := rapid.SampledFrom([]uint64{10, 20, 40}).Draw(t, "capacity") * mbit
			for k, at := range ends {
				uses[at] = reserve.Use{Capacity: capacity, Used: rapid.Uint64Range(0, 40).Draw(t, "used") * mbit}
				links = append(links, network.Link{From: at, To: ends[1-k], Capacity: capacity})
			}
		}
		top := topology.New(1, switches, links)
		from, to := network.PortRef{Switch: 1, Port: 1}, network.PortRef{Switch: switches[n-1], Port: 2}
		l := newLoads(reserve.New(func(at reserve.Link) reserve.Use { return uses[at] }), 0)
		all, err := l.widths(time.Now(), nil).widest(top, from, to, 3)
		w := l.widths(time.Now(), nil)
		shortest, there := top.Distance(from.Switch, to.Switch)
		if there != (err == nil) {
			t.Fatalf("%v, and there is a path: %v", err, there)
		}
		for i, f := range all {
			want := exhaust(top, w, from.Switch, to.Switch, shortest, map[openflow.DatapathID]bool{})
			if longer := exhaust(top, w, from.Switch, to.Switch, shortest+2, map[openflow.DatapathID]bool{}); longer >= 2*want {
				want = longer
			}
			if f.width != want {
				t.Fatalf("path %d has %d, the best of all paths %d", i, f.width, want)
			}
			w.add(f)
		}
	})
}

// What a further subflow of a connection is worth on a link of 10 Mbit/s, by whose subflows are there, and what others use.
func TestWorth(t *testing.T) {
	at, next := network.PortRef{Switch: 1, Port: 1}, network.PortRef{Switch: 2, Port: 1}
	hops := []network.Hop{{Switch: 1, In: 9, Out: 1}, {Switch: 2, In: 1, Out: 9}}
	for name, x := range map[string]struct {
		own, strangers int
		used           uint64 // by what is no subflow, in Mbit/s
		want           uint64 // in kbit/s
	}{
		"nobody is there":            {want: 10_000},
		"others use a part":          {used: 4, want: 6_000},
		"others fill it":             {used: 10, want: 1_250},
		"beside a stranger's":        {strangers: 1, want: 5_000},
		"beside its own alone":       {own: 1, want: 39},
		"beside its own and another": {own: 1, strangers: 1, want: 1_666},
		"its own, and others fill":   {own: 1, used: 10, want: 312},
		"two of its own, and others": {own: 2, used: 10, want: 138},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoads(reserve.New(func(reserve.Link) reserve.Use { return reserve.Use{Capacity: 10 * mbit, Used: x.used * mbit} }), 0)
			var others [][]network.Hop
			for i := range x.own + x.strangers {
				l.add(hops)
				if i < x.own {
					others = append(others, hops)
				}
			}
			if x.own+x.strangers > 0 { // what they carry is free for promises, not for others
				rest := (10 - x.used) * mbit
				l.setMeasured(map[reserve.Link]uint64{at: rest, next: rest}, nil)
			}
			if got := l.widths(time.Now(), others).gainAt(at) / 1000; got != x.want {
				t.Errorf("%d kbit/s, want %d", got, x.want)
			}
		})
	}
}

// exhaust tries every path of so many links at most, and tells the width of the widest; zero if
// there is none.
func exhaust(t *network.Topology, w widths, at, to openflow.DatapathID, most int, seen map[openflow.DatapathID]bool) (best uint64) {
	if at == to {
		return 1 << 62
	}
	if most == 0 {
		return 0
	}
	seen[at] = true
	defer delete(seen, at)
	for _, l := range t.LinksFrom(at) {
		if !seen[l.To.Switch] {
			best = max(best, min(w.width(l), exhaust(t, w, l.To.Switch, to, most-1, seen)))
		}
	}
	return best
}

// fatTree is one of k ports: k pods of as many switches, and (k/2)^2 above them, with links of
// which each carries something else.
func fatTree(k int) (t *network.Topology, use func(reserve.Link) reserve.Use) {
	r := rand.New(rand.NewPCG(1, 2))
	used := map[network.PortRef]uint64{}
	var switches []openflow.DatapathID
	var links []network.Link
	ports := map[openflow.DatapathID]uint32{}
	port := func(sw openflow.DatapathID) network.PortRef {
		ports[sw]++
		at := network.PortRef{Switch: sw, Port: ports[sw]}
		used[at] = uint64(r.IntN(1000)) * mbit
		return at
	}
	join := func(a, b openflow.DatapathID) {
		x, y := port(a), port(b)
		links = append(links, network.Link{From: x, To: y, Capacity: 1000 * mbit}, network.Link{From: y, To: x, Capacity: 1000 * mbit})
	}
	half := k / 2
	edge := func(pod, i int) openflow.DatapathID { return openflow.DatapathID(1 + pod*k + i) }
	for pod := range k {
		for i := range k {
			switches = append(switches, edge(pod, i))
		}
		for i := range half {
			for j := range half {
				join(edge(pod, i), edge(pod, half+j))
			}
		}
	}
	for i := range half * half {
		core := openflow.DatapathID(1 + k*k + i)
		switches = append(switches, core)
		for pod := range k {
			join(edge(pod, half+i/half), core)
		}
	}
	return topology.New(1, switches, links), func(at reserve.Link) reserve.Use { return reserve.Use{Capacity: 1000 * mbit, Used: used[at]} }
}

// BenchmarkPaths finds the paths of a connection in fat trees: at k = 48 between two of 27,648
// hosts.
func BenchmarkPaths(b *testing.B) {
	for _, k := range []int{6, 16, 48} {
		b.Run(fmt.Sprint("k=", k), func(b *testing.B) {
			t, use := fatTree(k)
			l := newLoads(reserve.New(use), 0)
			i := 0
			for b.Loop() {
				i++
				pod, other := i*7%k, (i*7+1+i*13%(k-1))%k
				from := network.PortRef{Switch: openflow.DatapathID(1 + pod*k + i%(k/2)), Port: 1000}
				to := network.PortRef{Switch: openflow.DatapathID(1 + other*k + i*5%(k/2)), Port: 1000}
				if _, err := l.widths(time.Now(), nil).widest(t, from, to, 4); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

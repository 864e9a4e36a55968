package graph

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/graph/path"
	"gonum.org/v1/gonum/graph/simple"
	"pgregory.net/rapid"
)

// random draws a small graph with whole-number weights, so that ties are common.
func random(t *rapid.T) (*Graph, Weights, []Arc) {
	nodes := rapid.IntRange(2, 6).Draw(t, "nodes")
	count := rapid.IntRange(0, 14).Draw(t, "arcs")
	arcs, w := make([]Arc, count), make(Weights, count)
	for i := range arcs {
		arcs[i] = Arc{rapid.IntRange(0, nodes-1).Draw(t, "from"), rapid.IntRange(0, nodes-1).Draw(t, "to")}
		w[i] = float64(rapid.IntRange(-1, 3).Draw(t, "weight"))
	}
	g, err := New(nodes, arcs)
	if err != nil {
		t.Fatal(err)
	}
	return g, w, arcs
}

// allPaths returns every path without repeated nodes.
func allPaths(g *Graph, from, to int, w Weights) []Path {
	var out []Path
	seen := make([]bool, g.Nodes())
	var walk func(at int, p Path)
	walk = func(at int, p Path) {
		if at == to {
			out = append(out, Path{slices.Clone(p.Arcs), p.Cost})
			return
		}
		seen[at] = true
		for i, a := range g.arcs {
			if a.From == at && !seen[a.To] && w[i] >= 0 {
				walk(a.To, Path{append(p.Arcs, i), p.Cost + w[i]})
			}
		}
		seen[at] = false
	}
	walk(from, Path{})
	slices.SortFunc(out, comparePaths)
	return out
}

func checkWalk(t *rapid.T, g *Graph, p Path, from, to int, w Weights) {
	at, cost := from, 0.0
	seen := map[int]bool{from: true}
	for _, a := range p.Arcs {
		if g.Arc(a).From != at {
			t.Fatalf("%v is not a walk", p.Arcs)
		}
		at = g.Arc(a).To
		cost += w[a]
		if seen[at] {
			t.Fatalf("%v visits node %d twice", p.Arcs, at)
		}
		seen[at] = true
	}
	if at != to || cost != p.Cost {
		t.Fatalf("path ends at %d with cost %v, want %d with %v", at, cost, to, p.Cost)
	}
}

func TestShortestPathAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, w, _ := random(t)
		for to := range g.Nodes() {
			all := allPaths(g, 0, to, w)
			p, ok := g.ShortestPath(0, to, w)
			if ok != (len(all) > 0) {
				t.Fatalf("to %d: found %v, brute force has %d paths", to, ok, len(all))
			}
			if !ok {
				continue
			}
			checkWalk(t, g, p, 0, to, w)
			if p.Cost != all[0].Cost || len(p.Arcs) != len(all[0].Arcs) {
				t.Fatalf("to %d: %v, want as good as %v", to, p, all[0])
			}
			tree, _ := g.ShortestTree(0, w)
			if q, _ := tree.Path(to); !slices.Equal(q.Arcs, p.Arcs) || tree.Cost(to) != p.Cost {
				t.Fatalf("tree says %v, search %v", q, p)
			}
		}
	})
}

// TestHopsTo checks that breadth-first search and least-cost search agree where each arc costs
// one.
func TestHopsTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, w, _ := random(t)
		for i := range w {
			w[i] = 1
		}
		for to := range g.Nodes() {
			hops, nearest := g.HopsTo(to)
			want := g.CostsTo(to, w)
			if !slices.Equal(hops, want) {
				t.Fatalf("to %d: %v, want %v", to, hops, want)
			}
			reached := 0
			for _, c := range want {
				if !math.IsInf(c, 1) {
					reached++
				}
			}
			if len(nearest) != reached || nearest[0] != int32(to) || !slices.IsSortedFunc(nearest, func(a, b int32) int { return cmp.Compare(hops[a], hops[b]) }) {
				t.Fatalf("to %d: %v at %v", to, nearest, hops)
			}
		}
		if hops, nearest := g.HopsTo(g.Nodes()); hops != nil || nearest != nil {
			t.Fatalf("to a node that does not exist: %v", hops)
		}
	})
}

// TestShortestPathBreaksTiesByNumber checks that only the numbers of arcs decide ties, and not
// their order in memory.
func TestShortestPathBreaksTiesByNumber(t *testing.T) {
	g, _ := New(5, []Arc{{0, 2}, {0, 1}, {1, 3}, {2, 3}, {0, 4}, {4, 3}, {1, 3}, {0, 3}})
	w := Weights{1, 1, 1, 1, 1, 1, 1, 2}
	p, _ := g.ShortestPath(0, 3, w)
	if !slices.Equal(p.Arcs, []int{7}) {
		t.Errorf("equal cost: chose %v, want the path with fewer arcs, [7]", p.Arcs)
	}
	w[7] = 3
	p, _ = g.ShortestPath(0, 3, w)
	if !slices.Equal(p.Arcs, []int{1, 2}) {
		t.Errorf("equal cost and length: chose %v, want [1 2]", p.Arcs)
	}
}

func TestKShortestAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, w, _ := random(t)
		all := allPaths(g, 0, 1, w)
		k := rapid.IntRange(1, 8).Draw(t, "k")
		got := g.KShortestPaths(0, 1, k, w)
		if len(got) != min(k, len(all)) {
			t.Fatalf("%d paths, want %d", len(got), min(k, len(all)))
		}
		for i, p := range got {
			checkWalk(t, g, p, 0, 1, w)
			if p.Cost != all[i].Cost {
				t.Fatalf("path %d costs %v, want %v", i, p.Cost, all[i].Cost)
			}
			for _, q := range got[:i] {
				if slices.Equal(p.Arcs, q.Arcs) {
					t.Fatalf("path %v twice", p.Arcs)
				}
			}
		}
	})
}

func TestWidestAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, cost, arcs := random(t)
		width := make(Weights, len(arcs))
		for i := range width {
			width[i] = float64(rapid.IntRange(-1, 3).Draw(t, "width"))
		}
		bestWidth, bestCost, any := -1.0, 0.0, false
		for _, p := range allPaths(g, 0, 1, cost) {
			narrow := math.Inf(1)
			for _, a := range p.Arcs {
				narrow = min(narrow, width[a])
			}
			if narrow >= 0 && (narrow > bestWidth || narrow == bestWidth && p.Cost < bestCost) {
				bestWidth, bestCost, any = narrow, p.Cost, true
			}
		}
		found, err := g.Solve(Problem{From: 0, To: 1, Cost: cost, Width: width, Widest: true})
		if ok := err == nil; ok != any {
			t.Fatalf("found %v, want %v", err, any)
		}
		if p := found.Path; any && (found.Value != bestWidth || p.Cost != bestCost || !found.Exact) {
			t.Fatalf("width %v cost %v, want %v and %v", found.Value, p.Cost, bestWidth, bestCost)
		}
		if any {
			checkWalk(t, g, found.Path, 0, 1, cost)
		}
	})
}

// bestDisjoint returns the least total cost of k disjoint paths, by trying all.
func bestDisjoint(g *Graph, all []Path, k int, share func(a, b Path) bool) (float64, bool) {
	best, found := 0.0, false
	var choose func(from int, chosen []Path, cost float64)
	choose = func(from int, chosen []Path, cost float64) {
		if len(chosen) == k {
			if !found || cost < best {
				best, found = cost, true
			}
			return
		}
		for i := from; i < len(all); i++ {
			if !slices.ContainsFunc(chosen, func(p Path) bool { return share(p, all[i]) }) {
				choose(i+1, append(slices.Clone(chosen), all[i]), cost+all[i].Cost)
			}
		}
	}
	choose(0, nil, 0)
	return best, found
}

func TestDisjointAgainstBruteForce(t *testing.T) {
	for _, d := range []Disjointness{EdgeDisjoint, NodeDisjoint} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g, w, _ := random(t)
				share := func(a, b Path) bool { return sharesEdge(g, a, b) }
				if d == NodeDisjoint {
					share = func(a, b Path) bool { return sharesEdge(g, a, b) || sharesNode(g, a, b) }
				}
				all := allPaths(g, 0, 1, w)
				if len(all) > 40 {
					t.Skip("too many paths to try all sets")
				}
				got := g.DisjointPaths(0, 1, 3, w, d)
				total := 0.0
				for i, p := range got {
					checkWalk(t, g, p, 0, 1, w)
					total += p.Cost
					for _, q := range got[:i] {
						if share(p, q) {
							t.Fatalf("%v and %v are not disjoint", p.Arcs, q.Arcs)
						}
					}
				}
				want, _ := bestDisjoint(g, all, len(got), share)
				if total != want {
					t.Fatalf("%d paths cost %v together, want %v", len(got), total, want)
				}
				if len(got) < 3 {
					if _, more := bestDisjoint(g, all, len(got)+1, share); more {
						t.Fatalf("found %d paths, there are more", len(got))
					}
				}
			})
		})
	}
}

// sharesEdge reports whether two paths share an arc, or use the two directions between one pair
// of nodes.
func sharesEdge(g *Graph, a, b Path) bool {
	for _, x := range a.Arcs {
		for _, y := range b.Arcs {
			if x == y || g.arcs[x].From == g.arcs[y].To && g.arcs[x].To == g.arcs[y].From {
				return true
			}
		}
	}
	return false
}

func sharesNode(g *Graph, a, b Path) bool {
	inner := func(p Path) (n []int) {
		for _, x := range p.Arcs[:max(0, len(p.Arcs)-1)] {
			n = append(n, g.arcs[x].To)
		}
		return n
	}
	return slices.ContainsFunc(inner(a), func(n int) bool { return slices.Contains(inner(b), n) })
}

func TestSpanningForest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 7).Draw(t, "nodes")
		edges := make([]Edge, rapid.IntRange(0, 12).Draw(t, "edges"))
		oracle := simple.NewWeightedUndirectedGraph(0, math.Inf(1))
		for n := range nodes {
			oracle.AddNode(simple.Node(n))
		}
		for i := range edges {
			e := Edge{rapid.IntRange(0, nodes-1).Draw(t, "a"), rapid.IntRange(0, nodes-1).Draw(t, "b"), float64(rapid.IntRange(1, 4).Draw(t, "w"))}
			edges[i] = e
			if old, ok := oracle.Weight(int64(e.A), int64(e.B)); e.A != e.B && (!ok || old > e.Weight) {
				oracle.SetWeightedEdge(oracle.NewWeightedEdge(simple.Node(e.A), simple.Node(e.B), e.Weight))
			}
		}
		total := 0.0
		chosen := SpanningForest(nodes, edges)
		for _, i := range chosen {
			total += edges[i].Weight
		}
		want := path.Kruskal(simple.NewWeightedUndirectedGraph(0, math.Inf(1)), oracle)
		if total != want {
			t.Fatalf("forest weighs %v, want %v", total, want)
		}
		// Losing an edge outside the forest changes nothing.
		for i := range edges {
			if slices.Contains(chosen, i) {
				continue
			}
			lost := slices.Clone(edges)
			lost[i].Weight = math.Inf(1)
			if !slices.Equal(SpanningForest(nodes, lost), chosen) {
				t.Fatalf("losing edge %d outside the forest changed it", i)
			}
		}
	})
}

func TestNewRefusesArcsToNowhere(t *testing.T) {
	for _, a := range []Arc{{0, 3}, {3, 0}, {-1, 0}, {0, -1}} {
		if _, err := New(3, []Arc{a}); err == nil {
			t.Errorf("arc %v accepted in a graph of 3 nodes", a)
		}
	}
}

// large returns a large random graph: n nodes, a ring for connectivity, and random arcs.
func large(n, m int) (*Graph, Weights, []Arc) {
	r := rand.New(rand.NewPCG(1, 2))
	arcs, w := make([]Arc, 0, m), make(Weights, 0, m)
	for i := range n {
		arcs = append(arcs, Arc{i, (i + 1) % n})
		w = append(w, 1+r.Float64())
	}
	for len(arcs) < m {
		arcs = append(arcs, Arc{r.IntN(n), r.IntN(n)})
		w = append(w, r.Float64())
	}
	g, err := New(n, arcs)
	if err != nil {
		panic(err)
	}
	return g, w, arcs
}

func TestLargeAgainstGonum(t *testing.T) {
	g, w, arcs := large(2000, 8000)
	oracle := gonumGraph(2000, arcs, w)
	want := path.DijkstraFrom(simple.Node(0), oracle)
	tree, _ := g.ShortestTree(0, w)
	for n := range 2000 {
		if d := math.Abs(tree.Cost(n) - want.WeightTo(int64(n))); d > 1e-9 {
			t.Fatalf("node %d: %v, gonum says %v", n, tree.Cost(n), want.WeightTo(int64(n)))
		}
	}
}

func gonumGraph(n int, arcs []Arc, w Weights) *simple.WeightedDirectedGraph {
	g := simple.NewWeightedDirectedGraph(0, math.Inf(1))
	for i := range n {
		g.AddNode(simple.Node(i))
	}
	for i, a := range arcs {
		if old, ok := g.Weight(int64(a.From), int64(a.To)); a.From != a.To && (!ok || w[i] < old) {
			g.SetWeightedEdge(g.NewWeightedEdge(simple.Node(a.From), simple.Node(a.To), w[i]))
		}
	}
	return g
}

func TestConcurrentSearches(t *testing.T) {
	g, w, _ := large(500, 2000)
	want, _ := g.ShortestPath(0, 250, w)
	done := make(chan Path, 8)
	for range cap(done) {
		go func() {
			var p Path
			for range 50 {
				p, _ = g.ShortestPath(0, 250, w)
			}
			done <- p
		}()
	}
	for range cap(done) {
		if p := <-done; !slices.Equal(p.Arcs, want.Arcs) {
			t.Errorf("got %v, want %v", p.Arcs, want.Arcs)
		}
	}
}

func BenchmarkShortestTree10k(b *testing.B) {
	g, w, _ := large(10000, 40000)
	for b.Loop() {
		g.ShortestTree(0, w)
	}
}

func BenchmarkGonumDijkstra10k(b *testing.B) {
	_, w, arcs := large(10000, 40000)
	g := gonumGraph(10000, arcs, w)
	for b.Loop() {
		path.DijkstraFrom(simple.Node(0), g)
	}
}

func BenchmarkShortestPath10k(b *testing.B) {
	g, w, _ := large(10000, 40000)
	i := 0
	for b.Loop() {
		i = (i + 7919) % 10000
		g.ShortestPath(0, i, w)
	}
}

func BenchmarkWidestPath10k(b *testing.B) {
	g, w, _ := large(10000, 40000)
	i := 0
	for b.Loop() {
		i = (i + 7919) % 10000
		if _, err := g.Solve(Problem{From: 0, To: i, Cost: w, Width: w, Widest: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKShortest8of10k(b *testing.B) {
	g, w, _ := large(10000, 40000)
	for b.Loop() {
		g.KShortestPaths(0, 5000, 8, w)
	}
}

func BenchmarkDisjoint4of10k(b *testing.B) {
	g, w, _ := large(10000, 40000)
	for b.Loop() {
		g.DisjointPaths(0, 5000, 4, w, EdgeDisjoint)
	}
}

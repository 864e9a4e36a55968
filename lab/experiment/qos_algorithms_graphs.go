package experiment

import (
	"errors"
	"math"
	"math/rand/v2"

	"github.com/sluice-net/sluice/network/graph"
)

// pathNet is a graph whose links have metrics in whole numbers: nanoseconds, units of the logarithm
// of the delivered share, and bits per second.
type pathNet struct {
	g                                *graph.Graph
	hops, delay, jitter, loss, width graph.Weights
}

// newPathNet returns a ring with random chords. The same size gives the same graph.
func newPathNet(nodes, arcs int) *pathNet {
	r := rand.New(rand.NewPCG(uint64(nodes), uint64(arcs)))
	list := make([]graph.Arc, arcs)
	for i := range list {
		if list[i] = (graph.Arc{From: i, To: (i + 1) % nodes}); i >= nodes {
			list[i] = graph.Arc{From: r.IntN(nodes), To: r.IntN(nodes)}
		}
	}
	draw := func(low, most int) graph.Weights {
		w := make(graph.Weights, arcs)
		for i := range w {
			w[i] = float64(low + r.IntN(most-low+1))
		}
		return w
	}
	g, err := graph.New(nodes, list)
	if err != nil {
		panic(err) // all arcs lead to nodes that exist
	}
	return &pathNet{
		g: g, hops: draw(1, 1), delay: draw(100_000, 10_000_000), jitter: draw(10_000, 5_000_000),
		loss: draw(0, 10_000_000), width: draw(0, 1_000_000_000),
	}
}

// newHardGrid returns a square grid of nodes, with arcs in both directions, where cheap arcs are
// slow.
func newHardGrid(side int) *pathNet {
	r := rand.New(rand.NewPCG(uint64(side), 1))
	n := &pathNet{}
	var list []graph.Arc
	join := func(a, b int) {
		for _, arc := range []graph.Arc{{From: a, To: b}, {From: b, To: a}} {
			c := float64(1 + r.IntN(1000))
			list, n.jitter, n.delay = append(list, arc), append(n.jitter, c), append(n.delay, 1001-c)
		}
	}
	for at := range side * side {
		if (at+1)%side != 0 {
			join(at, at+1)
		}
		if at+side < side*side {
			join(at, at+side)
		}
	}
	g, err := graph.New(side*side, list)
	if err != nil {
		panic(err) // all arcs lead to nodes that exist
	}
	n.g = g
	return n
}

// bound returns a bound on the sum of the bounded weights. It is between the least sum that a path
// can have and the sum of the path that is best in the other weights.
func (n *pathNet) bound(to int, bounded, best graph.Weights, share float64) graph.Bound {
	least, ok := n.g.ShortestPath(0, to, bounded)
	free, _ := n.g.ShortestPath(0, to, best)
	if !ok {
		return graph.Bound{Weights: bounded}
	}
	return graph.Bound{Weights: bounded, Max: math.Floor(least.Cost + share*(pathSum(bounded, free.Arcs)-least.Cost))}
}

func pathSum(w graph.Weights, arcs []int) (sum float64) {
	for _, a := range arcs {
		sum += w[a]
	}
	return sum
}

func isNoPath(err error) bool {
	var none *graph.NoPathError
	return errors.As(err, &none)
}

// pathClass is a row of table 2.1 or 2.2.
type pathClass struct {
	name    string
	table   string
	problem func(n *pathNet, to int) graph.Problem
	// gonum returns the weights that Dijkstra's algorithm minimises for this class, and whether
	// narrow links are left out. It is nil if gonum has no algorithm.
	gonum func(n *pathNet) (w graph.Weights, wide bool)
}

// pathFloor is the requested bandwidth, which three of ten links do not have.
const pathFloor = 300_000_000

func wideEnough(n *pathNet, p graph.Problem) graph.Problem {
	p.Width, p.MinWidth = n.width, pathFloor
	return p
}

func least(n *pathNet, to int, w graph.Weights, bounds ...graph.Bound) graph.Problem {
	return graph.Problem{To: to, Cost: w, Bounds: bounds}
}

// pathClasses returns the nine classes of table 2.1 and the four of table 2.2. Where the table has
// no objective, it is the fewest hops.
func pathClasses() []pathClass {
	const polynomial, hard = "2.1", "2.2"
	type net = *pathNet
	return []pathClass{
		{"bandwidth", polynomial, func(n net, to int) graph.Problem { return wideEnough(n, least(n, to, n.hops)) }, func(n net) (graph.Weights, bool) { return n.hops, true }},
		{"delay", polynomial, func(n net, to int) graph.Problem {
			return least(n, to, n.hops, n.bound(to, n.delay, n.hops, 0.5))
		}, func(n net) (graph.Weights, bool) { return n.delay, false }},
		{"loss", polynomial, func(n net, to int) graph.Problem {
			return least(n, to, n.hops, n.bound(to, n.loss, n.hops, 0.5))
		}, func(n net) (graph.Weights, bool) { return n.loss, false }},
		{"widest", polynomial, func(n net, to int) graph.Problem {
			return graph.Problem{To: to, Cost: n.hops, Width: n.width, Widest: true}
		}, nil},
		{"least delay", polynomial, func(n net, to int) graph.Problem { return least(n, to, n.delay) }, func(n net) (graph.Weights, bool) { return n.delay, false }},
		{"least loss", polynomial, func(n net, to int) graph.Problem { return least(n, to, n.loss) }, func(n net) (graph.Weights, bool) { return n.loss, false }},
		{"bandwidth, least delay", polynomial, func(n net, to int) graph.Problem { return wideEnough(n, least(n, to, n.delay)) }, func(n net) (graph.Weights, bool) { return n.delay, true }},
		{"bandwidth, least loss", polynomial, func(n net, to int) graph.Problem { return wideEnough(n, least(n, to, n.loss)) }, func(n net) (graph.Weights, bool) { return n.loss, true }},
		{"delay and bandwidth", polynomial, func(n net, to int) graph.Problem {
			return wideEnough(n, least(n, to, n.hops, n.bound(to, n.delay, n.hops, 0.5)))
		}, func(n net) (graph.Weights, bool) { return n.delay, true }},
		{"delay and jitter", hard, func(n net, to int) graph.Problem {
			return least(n, to, n.hops, n.bound(to, n.delay, n.jitter, 0.5), n.bound(to, n.jitter, n.delay, 0.5))
		}, nil},
		{"delay and loss", hard, func(n net, to int) graph.Problem {
			return least(n, to, n.hops, n.bound(to, n.delay, n.loss, 0.5), n.bound(to, n.loss, n.delay, 0.5))
		}, nil},
		{"delay, least jitter", hard, func(n net, to int) graph.Problem {
			return least(n, to, n.jitter, n.bound(to, n.delay, n.jitter, 0.5))
		}, nil},
		{"jitter, least loss", hard, func(n net, to int) graph.Problem {
			return least(n, to, n.loss, n.bound(to, n.jitter, n.loss, 0.5))
		}, nil},
	}
}

package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network/graph"
)

// These bound the time of path searches on 10,000 nodes and 40,000 arcs.
const (
	boundOfBandwidth = 10 * time.Millisecond
	boundOfDelay     = 30 * time.Millisecond
)

func qosAlgorithms() Experiment {
	return Experiment{
		Name:     "qos-algorithms",
		Title:    "Path searches under constraints: time and gap over the network's size, for every class of problem",
		Question: "How long does each class of path request take, is the answer exact, and how does that compare with gonum where it has the algorithm?",
		Source:   "dissertation 2018, tables 2.1 and 2.2: the classes; no measurements",
		Run:      runQoSAlgorithms,
	}
}

func runQoSAlgorithms(ctx context.Context, env *Env) (*Result, error) {
	sizes := pick(env.Scale, []int{100, 1000, 10_000}, []int{100, 300, 1000, 3000, 10_000, 30_000}, []int{100, 300, 1000, 3000, 10_000, 30_000, 100_000})
	env.Steps(len(sizes) + 1)
	r := &Result{Network: "none: random graphs in memory, 4 arcs to a node, whole-number delays of 0.1 to 10 ms, jitters to 5 ms, losses to 1 %, widths to 1 Gbit/s"}
	b := &algorithmBench{env: env, result: r}
	var err error
	if b.raw, err = env.CSV("searches", "class", "nodes", "arcs", "to", "search_seconds", "found", "algorithm", "exact", "gap", "labels", "gonum_seconds", "agrees"); err != nil {
		return nil, err
	}
	defer b.raw.Close()
	for _, nodes := range sizes {
		env.Step("%d nodes", nodes)
		if err := b.size(ctx, nodes); err != nil {
			return nil, err
		}
	}
	b.report(sizes)
	env.Step("grids whose cheap links are the slow ones")
	if err := hardGrids(ctx, env, r); err != nil {
		return nil, err
	}
	r.Note("Bounds lie half way between the least that a path can have and what the best path without the bound has, so they bind and can be met.")
	r.Note("gonum's graphs are built before its time is taken. It has Dijkstra's algorithm, by which it says whether a bound on one sum can be met; it has neither the widest path nor anything for two criteria.")
	r.Note("This experiment loads one core; its times suffer from other work on the machine.")
	return r, nil
}

// algorithmBench collects the searches of one run.
type algorithmBench struct {
	env       *Env
	result    *Result
	raw       *CSV
	points    []classPoint
	compared  int
	disagreed int
}

// classPoint holds the searches of one class in graphs of one size.
type classPoint struct {
	class       *pathClass
	nodes       int
	ours, gonum []float64 // ms
	exact, all  int
	gap         float64 // largest gap
	labels      int     // largest number of labels
}

func (b *algorithmBench) size(ctx context.Context, nodes int) error {
	n := newPathNet(nodes, 4*nodes)
	searches := pick(b.env.Scale, 5, 20, 50)
	classes := pathClasses()
	for i := range classes {
		c := classPoint{class: &classes[i], nodes: nodes}
		oracle := n.oracle(c.class)
		for k := range searches {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := b.search(n, &c, oracle, 1+(k+1)*7919%(nodes-1)); err != nil {
				return fmt.Errorf("%s, %d nodes: %w", c.class.name, nodes, err)
			}
		}
		b.points = append(b.points, c)
	}
	return nil
}

// search measures one request, and gonum's search for it if gonum has an algorithm.
func (b *algorithmBench) search(n *pathNet, c *classPoint, oracle *pathOracle, to int) error {
	p := c.class.problem(n, to)
	p.Limit.Time = time.Second
	begin := time.Now()
	s, err := n.g.Solve(p)
	took := time.Since(begin)
	if err != nil && !isNoPath(err) {
		return err
	}
	c.ours = append(c.ours, milliseconds(took))
	c.labels = max(c.labels, s.Labels)
	gap := gapOf(s, p.Widest)
	if err == nil {
		c.all++
		c.gap = max(c.gap, gap)
		if s.Exact {
			c.exact++
		}
	}
	var theirs time.Duration
	agrees := ""
	if oracle != nil {
		value, t := oracle.search(to)
		same := c.class.agrees(p, s, err == nil, value)
		theirs, agrees = t, fmt.Sprint(same)
		c.gonum = append(c.gonum, milliseconds(theirs))
		b.compared++
		if !same {
			b.disagreed++
		}
	}
	return b.raw.Row(c.class.name, n.g.Nodes(), n.g.Arcs(), to, took, err == nil, s.Algorithm, s.Exact, gap, s.Labels, theirs, agrees)
}

func gapOf(s graph.Solution, widest bool) float64 {
	switch {
	case s.Exact || s.Value == s.Bound:
		return 0
	case widest:
		return (s.Bound - s.Value) / s.Bound
	}
	return (s.Value - s.Bound) / s.Value
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

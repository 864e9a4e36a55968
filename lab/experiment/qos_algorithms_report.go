package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network/graph"
)

// report adds tables, plots and claims about the searches.
func (b *algorithmBench) report(sizes []int) {
	largest := 10_000 // a size that every scale has
	table := Table{
		Title:   fmt.Sprintf("%d nodes, %d arcs: time of one search", largest, 4*largest),
		Columns: []string{"table", "class", "median ms", "slowest ms", "gonum ms", "gonum/ours", "exact", "largest gap", "most labels"},
	}
	for _, p := range b.points {
		if p.nodes != largest {
			continue
		}
		theirs, ratio := "-", "-"
		if len(p.gonum) > 0 {
			theirs, ratio = fmt.Sprintf("%.1f", median(p.gonum)), fmt.Sprintf("%.1f", median(p.gonum)/median(p.ours))
		}
		table.Add(p.class.table, p.class.name, fmt.Sprintf("%.2f", median(p.ours)), fmt.Sprintf("%.2f", quantile(p.ours, 1)), theirs, ratio,
			fmt.Sprintf("%d of %d", p.exact, p.all), fmt.Sprintf("%.1f %%", 100*p.gap), p.labels)
	}
	b.result.Tables = append(b.result.Tables, table)
	b.result.Plots = append(b.result.Plots,
		b.plot("table-2-1", "Classes of polynomial time (table 2.1)", "bandwidth", "delay", "widest", "least delay", "delay and bandwidth"),
		b.plot("table-2-2", "Classes that are NP-complete (table 2.2)", "delay and jitter", "delay and loss", "delay, least jitter", "jitter, least loss"))
	b.claims(largest)
}

func (b *algorithmBench) claims(nodes int) {
	r := b.result
	r.Claim(b.disagreed == 0 && b.compared > 0, "gonum comes to the same result wherever it has the algorithm", "%d of %d searches", b.compared-b.disagreed, b.compared)
	bandwidth, delay := b.at("bandwidth", nodes), b.at("delay", nodes)
	r.Claim(median(bandwidth.ours) <= milliseconds(boundOfBandwidth), fmt.Sprintf("the shortest path of enough bandwidth within %v on %d nodes", boundOfBandwidth, nodes), "median %.2f ms", median(bandwidth.ours))
	r.Claim(median(delay.ours) <= milliseconds(boundOfDelay) && delay.exact == delay.all, fmt.Sprintf("the path of fewest hops of bounded delay, exact, within %v", boundOfDelay), "median %.2f ms, %d of %d exact", median(delay.ours), delay.exact, delay.all)
	slowest, exact, all := 0.0, 0, 0
	for _, p := range b.points {
		exact, all = exact+p.exact, all+p.all
		if p.nodes == nodes {
			slowest = max(slowest, median(p.ours))
		}
	}
	r.Claim(slowest <= milliseconds(boundOfDelay), fmt.Sprintf("the slowest class within %v on %d nodes", boundOfDelay, nodes), "median %.2f ms", slowest)
	r.Claim(exact == all, "every answer on random graphs is exact", "%d of %d", exact, all)
}

func (b *algorithmBench) at(class string, nodes int) classPoint {
	for _, p := range b.points {
		if p.class.name == class && p.nodes == nodes {
			return p
		}
	}
	return classPoint{}
}

// plot returns a plot of the median time of some classes, and of gonum for the first class that it
// can search.
func (b *algorithmBench) plot(name, title string, classes ...string) Plot {
	out := Plot{Name: name, Title: title, X: "nodes", Y: "time of a search, ms", LogX: true, LogY: true, Left: true}
	theirs := Series{Label: "gonum, least delay"}
	for _, class := range classes {
		line := Series{Label: class}
		for _, p := range b.points {
			if p.class.name != class {
				continue
			}
			line.Point(float64(p.nodes), median(p.ours))
			if class == "least delay" {
				theirs.Point(float64(p.nodes), median(p.gonum))
			}
		}
		out.Series = append(out.Series, line)
	}
	if len(theirs.X) > 0 {
		out.Series = append(out.Series, theirs)
	}
	return out
}

// hardGrids measures the worst case: the search must keep the time limit and report its gap.
func hardGrids(ctx context.Context, env *Env, r *Result) error {
	sides := pick(env.Scale, []int{5, 10, 20, 50, 100}, []int{5, 10, 15, 20, 30, 50, 100}, []int{5, 10, 15, 20, 30, 50, 100, 200, 300})
	limits := pick(env.Scale, []time.Duration{100 * time.Millisecond}, []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, time.Second}, []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second})
	raw, err := env.CSV("grids", "nodes", "limit_seconds", "search_seconds", "shortest_path_seconds", "algorithm", "exact", "gap", "labels")
	if err != nil {
		return err
	}
	defer raw.Close()
	table := Table{Title: "Grids whose cheap links are the slow ones: least jitter under a bound on delay", Columns: []string{"nodes", "limit", "took", "by", "labels", "gap"}}
	gaps := Plot{Name: "gap", Title: "How much better a path may exist, where cheap links are slow", X: "nodes", Y: "gap, %", LogX: true, Left: true}
	kept, worst := true, 0.0
	for _, limit := range limits {
		line := Series{Label: fmt.Sprintf("limit %v", limit)}
		for _, side := range sides {
			if err := ctx.Err(); err != nil {
				return err
			}
			g := solveGrid(side, limit)
			if g.err != nil {
				return g.err
			}
			gap := gapOf(g.s, false)
			line.Point(float64(side*side), 100*gap)
			table.Add(side*side, limit, g.took.Round(10*time.Microsecond), g.s.Algorithm, g.s.Labels, fmt.Sprintf("%.1f %%", 100*gap))
			over := g.took - limit - 10*g.one
			kept, worst = kept && over <= 0, max(worst, float64(g.took)/float64(limit))
			if err := raw.Row(side*side, limit, g.took, g.one, g.s.Algorithm, g.s.Exact, gap, g.s.Labels); err != nil {
				return err
			}
		}
		gaps.Series = append(gaps.Series, line)
	}
	r.Tables, r.Plots = append(r.Tables, table), append(r.Plots, gaps)
	r.Claim(kept, "no search exceeds its limit by more than ten searches of a shortest path", "the longest took %.2f of its limit", worst)
	return nil
}

// gridRun is one search on a hard grid.
type gridRun struct {
	s         graph.Solution
	took, one time.Duration
	err       error
}

// solveGrid returns the fastest of three runs, because the limit is wall-clock time and other
// programs run meanwhile.
func solveGrid(side int, limit time.Duration) (best gridRun) {
	n := newHardGrid(side)
	to := side*side - 1
	p := least(n, to, n.jitter, n.bound(to, n.delay, n.jitter, 0.3))
	p.Limit.Time = limit
	for range 3 {
		begin := time.Now()
		n.g.ShortestTree(0, n.jitter)
		r := gridRun{one: time.Since(begin)}
		begin = time.Now()
		r.s, r.err = n.g.Solve(p)
		if r.took = time.Since(begin); best.took == 0 || r.took < best.took {
			best = r
		}
	}
	return best
}

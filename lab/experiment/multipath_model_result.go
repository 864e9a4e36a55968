package experiment

import (
	"fmt"
	"slices"
)

// treeModelResult returns the tables, plots and claims.
func treeModelResult(all []modelled) *Result {
	r := &Result{Network: fmt.Sprintf("none: flows in fat trees of %d Mbit/s, those of hosts included, each direction a link of its own; nothing but rates is modelled", int(modelLink/1e6))}
	r.Tables = append(r.Tables, modelTable(all))
	if published := modelPublished(all); len(published.Rows) > 0 {
		r.Tables = append(r.Tables, published)
	}
	for m := range 2 {
		claimModel(r, all, m)
		r.Plots = append(r.Plots, modelPlots(all, m)...)
	}
	r.Note("Rates are max-min fair, and the subflows of a connection weigh together what TCP weighs alone, as coupled congestion control has it, which the dissertation's kernel used. Upstream Linux has none: there each subflow weighs as much as TCP (ways named single). Slow start, losses, queues and acknowledgements are not modelled.")
	r.Note("The ideal splits each flow over all paths. A fat tree carries whatever its hosts can send and receive, so that is max-min over the links of hosts alone. That is the fairest there is; a mean can be higher where it is less fair, as with many single subflows beside few.")
	r.Note("A hash is chance among the shortest ways, and the same for the same subflow whatever else differs. Further subflows are placed, and moved, by the service's own code with its default settings: readings every %v, a subflow known for %v after its end, which are 5 and 30 s at the model's pace, and %d paths at most. Its bounds on the number of subflows are left out.", modelInterval, modelIdle, modelPaths)
	r.Note("All times are divided by %d; a further subflow begins for each MB that a connection has carried, which takes 1 s at the rate of a link. Gaps are such that a host of each tree sends as often as one of the dissertation's %d.", modelPace, matrixHosts)
	r.Note("The sizes of large flows, which the dissertation does not tell, have been chosen so that TCP over hash comes near to what it published in both matrices where it is real (multipath-fattree). Here it gets more, and so gains less, since nothing is lost.")
	return r
}

func modelTable(all []modelled) Table {
	t := Table{Title: "Large flows: throughput in percent of a link's rate; times in seconds", Columns: []string{
		"k", "hosts", "flows", "matrix", "way", "mean %", "p10", "p50", "p90", "large p50 s", "p99", "small p50 s", "p99",
	}}
	for _, m := range all {
		hosts := newModelTree(m.k).hosts()
		t.Add(m.k, hosts, fmt.Sprintf("%d x %d", m.times, hosts*m.perHost), modelMatrix(m.matrix).name, m.way.name, meanText(m.shares, 100, 1),
			inPercent(quantile(m.shares, 0.1)), inPercent(median(m.shares)), inPercent(quantile(m.shares, 0.9)),
			ms2(median(m.large)), ms2(quantile(m.large, 0.99)), ms2(median(m.small)), ms2(quantile(m.small, 0.99)))
	}
	return t
}

func inPercent(part float64) string { return fmt.Sprintf("%.1f", 100*part) }

// modelPublished returns a table of the dissertation's figures beside those of the model for the
// same tree.
func modelPublished(all []modelled) Table {
	t := Table{Title: "Mean share of large flows at k = 6, in percent", Columns: []string{"matrix", "way", "model", "times TCP", "published", "times TCP"}}
	for m := range 2 {
		tcp := modelFind(all, m, modelWays()[0])
		for _, w := range modelledIn(modelK) {
			got := modelFind(all, m, w)
			if tcp == nil || got == nil {
				continue
			}
			published, times := "", ""
			if w.published[m] > 0 {
				published, times = fmt.Sprint(w.published[m]), ms2(w.published[m]/tcp.way.published[m])
			}
			t.Add(modelMatrix(m).name, w.name, meanText(got.shares, 100, 1), ms2(mean(got.shares)/mean(tcp.shares)), published, times)
		}
	}
	return t
}

// modelFind returns the results of a way in the dissertation's tree, or nil if that was not
// simulated.
func modelFind(all []modelled, matrix int, w modelWay) *modelled {
	i := slices.IndexFunc(all, func(m modelled) bool { return m.k == modelK && m.matrix == matrix && m.way == w })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// modelGain is the smallest ratio of the share of large flows with placed subflows to their share
// with TCP over hash. modelSmall is the largest ratio of the times of small flows.
const (
	modelGain  = 1.25
	modelSmall = 1.02
)

func claimModel(r *Result, all []modelled, matrix int) {
	by := map[string]*modelled{}
	for _, w := range modelledIn(modelK) {
		if by[w.name] = modelFind(all, matrix, w); by[w.name] == nil {
			return
		}
	}
	tree := fmt.Sprintf("%s, k = %d", modelMatrix(matrix).name, modelK)
	tcp, most := by["TCP, hash"], ""
	for _, kernel := range []string{"", ", single"} {
		for _, n := range []int{2, 3} {
			hashed, placed := by[fmt.Sprintf("%d subflows, hash%s", n, kernel)], by[fmt.Sprintf("%d subflows, placed%s", n, kernel)]
			has := mean(placed.shares)
			r.Claim(has >= modelGain*mean(tcp.shares), fmt.Sprintf("%s, %s: at least %.2f times TCP over hash", tree, placed.way.name, modelGain), "%.2f times", has/mean(tcp.shares))
			r.Claim(has > mean(hashed.shares), fmt.Sprintf("%s, %s: above as many hashed", tree, placed.way.name), "%s and %s %%", inPercent(has), inPercent(mean(hashed.shares)))
			than, less := tcp, "over hash alone"
			if placed.way.single {
				than, less = hashed, "with as many hashed"
			}
			for _, q := range []float64{0.5, 0.99} {
				took, least := quantile(placed.small, q), quantile(than.small, q)
				r.Claim(took <= modelSmall*least, fmt.Sprintf("%s, %s: small flows take no longer than %s, p%.0f, by %.0f %% at most", tree, placed.way.name, less, 100*q, 100*(modelSmall-1)),
					"%.3f and %.3f s", took, least)
			}
		}
	}
	for _, w := range modelWays() {
		if !w.ideal && (most == "" || mean(by[w.name].shares) > mean(by[most].shares)) {
			most = w.name
		}
	}
	has, ideal := mean(by[most].shares), mean(by["ideal"].shares)
	r.Claim(has <= ideal, tree+": no way is above the ideal", "%s have %s of %s %%", most, inPercent(has), inPercent(ideal))
	single := by["2 subflows, placed, single"]
	r.Note("%s: without coupling, small flows take longer than over hash alone: %.2f and %.2f s at p50, %.2f and %.2f s at p99 (2 subflows, placed), wherever further subflows go.", tree,
		median(single.small), median(tcp.small), quantile(single.small, 0.99), quantile(tcp.small, 0.99))
}

// modelPlots returns figures 5.11 to 5.14 for one matrix.
func modelPlots(all []modelled, matrix int) []Plot {
	name := modelMatrix(matrix).name
	share := Plot{Name: "throughput-" + name, Title: "Throughput of large flows, " + name, X: "% of a link's rate", Y: "% of the flows", Left: true}
	took := Plot{Name: "completion-" + name, Title: "Completion of large flows, " + name, X: "s", Y: "% of the flows", Left: true, LogX: true}
	for _, w := range modelWays() {
		m := modelFind(all, matrix, w)
		if m == nil {
			return nil
		}
		s, t := Series{Label: w.name}, Series{Label: w.name}
		for part := 0; part <= 100; part += 4 {
			s.Point(100*quantile(m.shares, float64(part)/100), float64(part))
			t.Point(quantile(m.large, float64(part)/100), float64(part))
		}
		share.Series, took.Series = append(share.Series, s), append(took.Series, t)
	}
	return []Plot{share, took}
}

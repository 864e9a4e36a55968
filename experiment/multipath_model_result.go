package experiment

import (
	"fmt"
	"slices"
)

// treeModelResult draws up tables, plots and claims.
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
	r.Note("Rates are max-min fair among subflows, each of the same weight, as upstream Linux has it: congestion control is not coupled there. Slow start, losses, queues and acknowledgements are not modelled.")
	r.Note("The ideal splits each flow over all paths. A fat tree carries whatever its hosts can send and receive, so that is max-min over the links of hosts alone. It is the fairest there is, but not the highest mean: who gives one flow less than another, as many subflows beside few do, can have a higher one.")
	r.Note("A hash is chance among the shortest ways, and the same for the same subflow in all configurations. Placed are further subflows by the plugin's own code, with moves: readings every %v, connections are forgotten %v after their end, %d paths at most.", modelInterval, modelIdle, modelPaths)
	r.Note("As in the lab, all times are divided by %d, and a further subflow begins for each MB that has been carried, which takes 1 s at the rate of a link. Flows begin at gaps that make each host of each tree send as often as one of the dissertation's 54.", modelPace)
	r.Note("The sizes of large flows, which the dissertation does not tell, have been chosen so that TCP over hash comes near to what it published in both matrices; all else follows.")
	return r
}

func modelTable(all []modelled) Table {
	t := Table{Title: "Large flows: throughput in percent of a link's rate; times in seconds", Columns: []string{
		"k", "hosts", "flows", "matrix", "way", "mean %", "p10", "p50", "p90", "large p50 s", "p99", "small p50 s", "p99",
	}}
	for _, m := range all {
		hosts := newModelTree(m.k).hosts()
		t.Add(m.k, hosts, fmt.Sprintf("%d x %d", m.times, hosts*m.perHost), modelMatrix(m.matrix).name, m.way.name, inPercent(mean(m.shares)),
			inPercent(quantile(m.shares, 0.1)), inPercent(median(m.shares)), inPercent(quantile(m.shares, 0.9)),
			ms2(median(m.large)), ms2(quantile(m.large, 0.99)), ms2(median(m.small)), ms2(quantile(m.small, 0.99)))
	}
	return t
}

func inPercent(part float64) string { return fmt.Sprintf("%.1f", 100*part) }

// modelPublished is what the dissertation has of the same tree beside the model.
func modelPublished(all []modelled) Table {
	t := Table{Title: "Mean share of large flows at k = 6, in percent", Columns: []string{"matrix", "way", "model", "times TCP", "published", "times TCP"}}
	for m := range 2 {
		tcp := modelFind(all, m, modelWays()[0])
		for _, w := range modelWays() {
			got := modelFind(all, m, w)
			if tcp == nil || got == nil {
				continue
			}
			published, times := "", ""
			if w.published[m] > 0 {
				published, times = fmt.Sprint(w.published[m]), ms2(w.published[m]/tcp.way.published[m])
			}
			t.Add(modelMatrix(m).name, w.name, inPercent(mean(got.shares)), ms2(mean(got.shares)/mean(tcp.shares)), published, times)
		}
	}
	return t
}

// modelFind is what a way has given in the dissertation's tree; nil if that has not been simulated.
func modelFind(all []modelled, matrix int, w modelWay) *modelled {
	i := slices.IndexFunc(all, func(m modelled) bool { return m.k == modelK && m.matrix == matrix && m.way == w })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// What placed subflows are held to: modelGain is how many times the share of TCP over hash large
// flows have at least, modelSmall how many times as long small flows take at most.
const (
	modelGain  = 1.25
	modelSmall = 1.02
)

func claimModel(r *Result, all []modelled, matrix int) {
	by := map[string]*modelled{}
	for _, w := range modelWays() {
		if by[w.name] = modelFind(all, matrix, w); by[w.name] == nil {
			return
		}
	}
	name := modelMatrix(matrix).name
	tcp, ideal := by["TCP, hash"], by["ideal"]
	for _, n := range []int{2, 3} {
		hashed, placed := by[fmt.Sprintf("%d subflows, hash", n)], by[fmt.Sprintf("%d subflows, placed", n)]
		has := mean(placed.shares)
		r.Claim(has >= modelGain*mean(tcp.shares), fmt.Sprintf("%s, k = %d, %d subflows, placed: at least %.2f times TCP over hash", name, modelK, n, modelGain), "%.2f times", has/mean(tcp.shares))
		r.Claim(has > mean(hashed.shares), fmt.Sprintf("%s, k = %d, %d subflows: placed above hashed", name, modelK, n), "%s and %s %%", inPercent(has), inPercent(mean(hashed.shares)))
		for _, q := range []float64{0.5, 0.99} {
			short, by := quantile(placed.small, q), quantile(tcp.small, q)
			r.Claim(short <= modelSmall*by, fmt.Sprintf("%s, k = %d, %d subflows, placed: small flows take no longer than over hash alone, p%.0f, by %.0f %% at most", name, modelK, n, 100*q, 100*(modelSmall-1)),
				"%.3f and %.3f s", short, by)
		}
	}
	for _, w := range modelWays() {
		if !w.ideal {
			has, most := mean(by[w.name].shares), mean(ideal.shares)
			r.Claim(has <= most, fmt.Sprintf("%s, k = %d, %s: not above the ideal", name, modelK, w.name), "%s of %s %%", inPercent(has), inPercent(most))
		}
	}
}

// modelPlots are figures 5.11 to 5.14 for one matrix.
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

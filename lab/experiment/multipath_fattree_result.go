package experiment

import (
	"fmt"
	"math"
	"slices"
)

// shares returns the shares of a link that large flows have reached.
func (r fatTreeRun) shares() []float64 { return r.of(true, fatTreeFlow.share) }

// of returns a figure of each large flow, or of each small one.
func (r fatTreeRun) of(large bool, figure func(fatTreeFlow) float64) (all []float64) {
	for _, f := range r.flows {
		if f.large == large {
			all = append(all, figure(f))
		}
	}
	return all
}

func seconds(f fatTreeFlow) float64 { return f.took.Seconds() }

// modelled returns the mean share of a link that large flows reach in the model: with the way of
// the run, and with the best possible routing.
func (r fatTreeRun) modelled(k int) (way, ideal float64) {
	flows := make([]matrixFlow, len(r.flows))
	for i, f := range r.flows {
		flows[i] = f.matrixFlow
	}
	share := func(w modelWay) float64 {
		var all []float64
		for i, took := range w.carry(k, flows, 1) {
			if flows[i].large {
				all = append(all, flows[i].work.Seconds()/took)
			}
		}
		return mean(all)
	}
	way = math.NaN() // the model does not move flows that are not placed when they begin
	if !r.way.samples() {
		way = share(modelWay{subflows: r.way.subflows, placed: r.way.placed, single: true})
	}
	return way, share(modelWay{subflows: 1, ideal: true})
}

func fatTreeResult(s fatTreeScale, ceiling float64, all []fatTreeRun) *Result {
	hosts := s.k * s.k * s.k / 4
	r := &Result{Network: fmt.Sprintf("fat tree of k = %d: %d switches, %d hosts, every link %.0f Mbit/s; %d flows a matrix, times divided by %g",
		s.k, s.k*s.k*5/4, hosts, fatTreeRate/1e6, s.flows, s.pace)}
	r.Tables = append(r.Tables, fatTreeTable(s, all, ceiling), fatTreeMachine(all))
	for _, m := range s.matrices {
		of := map[string]fatTreeRun{}
		for _, run := range all {
			if run.matrix.name == m.name {
				of[run.way.name] = run
			}
		}
		fatTreeCompare(r, s, of, ceiling)
		r.Plots = append(r.Plots, fatTreePlots(m, all)...)
	}
	for _, run := range all {
		r.Claim(run.tcp == run.joins && (run.way.placed || run.joins == 0), fmt.Sprintf("%s, %s: no TCP packet comes to the controller but marked SYNs", run.matrix.name, run.way.name),
			"%.0f for %.0f marked SYNs, of %d flows", run.tcp, run.joins, len(run.flows))
	}
	for _, run := range all {
		if hanging := run.hanging(); run.way.placed {
			r.Claim(hanging == 0, fmt.Sprintf("%s, %s: every flow ends within %v", run.matrix.name, run.way.name, hangsAfter), "%d of %d do not, and count as if they ended then", hanging, len(run.flows))
		} else if hanging > 0 {
			r.Note("%s, %s: %d of %d flows do not end within %v, and count as if they ended then.", run.matrix.name, run.way.name, hanging, len(run.flows), hangsAfter)
		}
	}
	r.Note("All ways carry the same flows of the same matrix. A large flow gets a further subflow for each MiB that it has carried, one at each look of the host agent, which are four in a second. All settings are the default ones but forwarding.mode: proactive, qos.subflows.enabled (for TCP placed qos.subflows.plain_tcp, and samples of one packet in 100), the host agent's --subflows, and the interval of counters, which is divided as times are, but not below 1 s.")
	r.Note("The dissertation says when flows start, how many are small, and who sends to whom; not how large they are, nor the rate of its links. Small ones take up to %v at the rate of a link here, large ones %v to %v (TM1) and %v to %v (TM2), before times are divided: so plain TCP over hash gets about the published part of what the machine carries.", smallWorkMax, matrix1.largeMin, matrix1.largeMax, matrix2.largeMin, matrix2.largeMax)
	r.Note("The model is multipath-model's, of the same flows, where links carry their rate: without coupling of subflows, as upstream Linux has none, and at the pace %d; the ideal is max-min over the links of hosts.", fatTreePace)
	r.Note("The ceiling is what plain TCP gets when all %d hosts send at once on paths that share no link, written by hand.", hosts)
	return r
}

func fatTreeTable(s fatTreeScale, all []fatTreeRun, ceiling float64) Table {
	t := Table{
		Title: fmt.Sprintf("Large flows' share of a link in percent, and completion in seconds; the ceiling is %.1f %%", ceiling*100),
		Columns: []string{
			"matrix", "way", "mean", "of the ceiling", "model", "ideal", "published", "p10", "p50", "p90", "large p50", "large p99", "small p50", "small p99",
		},
	}
	for _, run := range all {
		shares, large, small := run.shares(), run.of(true, seconds), run.of(false, seconds)
		published := ""
		if p, ok := run.way.published[run.matrix.name]; ok {
			published = fmt.Sprint(p)
		}
		percent := func(v float64) string {
			if math.IsNaN(v) {
				return ""
			}
			return fmt.Sprintf("%.1f", v*100)
		}
		model, ideal := run.modelled(s.k)
		t.Add(run.matrix.name, run.way.name, meanText(shares, 100, 1), percent(mean(shares)/ceiling), percent(model), percent(ideal), published, percent(quantile(shares, 0.1)), percent(median(shares)), percent(quantile(shares, 0.9)),
			ms2(median(large)), ms2(quantile(large, 0.99)), ms2(median(small)), ms2(quantile(small, 0.99)))
	}
	return t
}

// fatTreeMachine returns a table of the load of the controller and of the machine.
func fatTreeMachine(all []fatTreeRun) Table {
	t := Table{
		Title:   "Packets that came to the controller, and the machine",
		Columns: []string{"matrix", "way", "flows", "large", "TCP packets", "marked SYNs", "placed", "ARP", "processors busy", "lost by sockets", "lost by the backlog"},
	}
	for _, run := range all {
		t.Add(run.matrix.name, run.way.name, len(run.flows), len(run.shares()), run.tcp, run.joins, run.placed, run.arp, ms2(run.cpu), run.drops.Sockets, run.drops.Backlog)
	}
	return t
}

// fatTreeCompare adds claims that compare the ways of one matrix, by their names, with plain TCP
// over hash.
func fatTreeCompare(r *Result, s fatTreeScale, of map[string]fatTreeRun, ceiling float64) {
	plain, measured := of["TCP hashed"]
	for _, w := range fatTreeWays {
		run, ok := of[w.name]
		switch {
		case !measured || !ok || !w.placed:
		case w.samples():
			share, tcp := mean(run.shares()), mean(plain.shares())
			r.Claim(share > tcp, fmt.Sprintf("%s, %s: large flows get more than where hash has put them", run.matrix.name, w.name), "%.1f %% of a link, hash %.1f %%", share*100, tcp*100)
		default:
			fatTreeClaims(r, s, run, plain, of[fmt.Sprintf("%d hashed", w.subflows)], ceiling)
		}
	}
}

// fatTreeClaims adds claims that compare placed subflows with plain TCP, with as many hashed ones,
// and with the published figures, and claims about small flows.
func fatTreeClaims(r *Result, s fatTreeScale, placed, plain, hashed fatTreeRun, ceiling float64) {
	name := fmt.Sprintf("%s, %s: ", placed.matrix.name, placed.way.name)
	share := mean(placed.shares())
	const times = 1.25
	tcp := mean(plain.shares())
	r.Claim(share >= times*tcp, name+fmt.Sprintf("large flows get at least %.2f times what plain TCP over hash gets", times), "%.1f %% of a link, plain TCP %.1f %%: %.2f times", share*100, tcp*100, share/tcp)
	if hashed.flows != nil {
		h := mean(hashed.shares())
		r.Claim(share > h, name+"more than as many hashed subflows get", "%.1f %%, hashed %.1f %%", share*100, h*100)
	}
	published := placed.way.published[placed.matrix.name]
	r.Claim(share/ceiling*100 >= published, name+fmt.Sprintf("of what the machine carries at least the published %.1f %%", published), "%.1f %%", share/ceiling*100)
	asPublished := published / plain.way.published[placed.matrix.name]
	r.Claim(share >= asPublished*tcp, name+fmt.Sprintf("as many times what plain TCP gets as is published, %.2f", asPublished), "%.2f times", share/tcp)
	const worse = 1.1
	for _, q := range []float64{0.5, 0.99} {
		ours, theirs := quantile(placed.of(false, seconds), q), quantile(plain.of(false, seconds), q)
		r.Claim(ours <= worse*theirs, name+fmt.Sprintf("small flows complete no later than over hash alone by a tenth, p%g", q*100), "%.2f s, hash alone %.2f s", ours, theirs)
	}
}

// fatTreePlots returns figures 5.11 to 5.14.
func fatTreePlots(m trafficMatrix, all []fatTreeRun) []Plot {
	throughput := Plot{Name: "throughput-" + m.name, Title: "Throughput of large flows, " + m.name, X: "part of a link's rate", Y: "part of the flows", Left: true}
	completion := Plot{Name: "completion-" + m.name, Title: "Completion time of large flows, " + m.name, X: "seconds", Y: "part of the flows"}
	small := Plot{Name: "small-" + m.name, Title: "Completion time of small flows, " + m.name, X: "seconds", Y: "part of the flows", LogX: true}
	for _, run := range all {
		if run.matrix.name != m.name {
			continue
		}
		throughput.Series = append(throughput.Series, distribution(run.way.name, run.shares()))
		completion.Series = append(completion.Series, distribution(run.way.name, run.of(true, seconds)))
		small.Series = append(small.Series, distribution(run.way.name, run.of(false, seconds)))
	}
	return []Plot{throughput, completion, small}
}

// distribution returns the empirical distribution function of values: for each value the share of
// values that are not larger.
func distribution(label string, values []float64) Series {
	s := Series{Label: label}
	for i, v := range slices.Sorted(slices.Values(values)) {
		s.Point(v, float64(i+1)/float64(len(values)))
	}
	return s
}

package experiment

import (
	"fmt"
	"math"
	"slices"
)

const (
	// treeSlack is the largest number of copies that the controller's probes of links may add to
	// those of a link. treeFew is the relative error of counters that are read one after the other.
	treeSlack, treeFew = 0.1, 0.03
	// treeProcessing is the time in ms that the controller and the switches may add to a modelled
	// time, because they share this machine with all other programs.
	treeProcessing = 50
)

// treeResult adds the tables and claims that compare the ways.
func treeResult(r *Result, t *treeRun) {
	table := Table{
		Title:   "Copies of one datagram of each channel on all links between switches (links that carry some; most on one link), and control messages for all viewers to join",
		Columns: []string{"channels", "viewers"},
	}
	for _, w := range t.ways {
		table.Columns = append(table.Columns, w, "links", "most", "messages", "missed")
	}
	for i, load := range t.loads {
		row := []any{load.channels, load.viewers}
		for _, w := range t.ways {
			c := t.costs[w][i]
			row = append(row, fmt.Sprintf("%.1f", c.copies), c.links, fmt.Sprintf("%.1f", c.most), orDash(c.messages), c.missed)
		}
		table.Add(row...)
	}
	r.Tables = append(r.Tables, table)
	for _, w := range t.ways {
		treePlot(r, w, t.loads, t.costs[w])
	}
	if slices.Contains(t.ways, wayCinema) {
		treeClaims(r, t)
	}
	r.Note("A copy is one datagram on one direction of one link, from the byte counters of the switches' ports. Missed are datagrams that a viewer has not got, or has got twice; where it is not 0 the figures beside it are of no use.")
	r.Note("Unicast is what a media server sends that has a copy for each viewer, by default forwarding. Flooding leads each channel that somebody watches by one fixed tree to all switches. IP multicast is PIM-SM by pimd with a rendezvous point, %v after the joins; where its copies are no whole number it was just going over to another tree. Its messages are those of IGMP and PIM that routers have got until then, periodic ones among them. Those of Cinema are changes of rules and groups.", pimdSettles)
}

func orDash(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.0f", v)
}

// treePlot adds the line of a way to the plot of copies, from its loads of one channel.
func treePlot(r *Result, way string, loads []treeLoad, costs []treeCost) {
	if len(r.Plots) == 0 {
		r.Plots = append(r.Plots, Plot{Name: "copies", Title: "Copies of a datagram of one channel", X: "viewers", Y: "copies on all links", LogX: true, LogY: true, Left: true})
	}
	s := Series{Label: way}
	for i, load := range loads {
		if load.channels == 1 {
			s.Point(float64(load.viewers), costs[i].copies)
		}
	}
	r.Plots[0].Series = append(r.Plots[0].Series, s)
}

func treeClaims(r *Result, t *treeRun) {
	ways, loads, costs := t.ways, t.loads, t.costs
	missed, most, worse := 0, 0.0, 0
	for i, load := range loads {
		c := costs[wayCinema][i]
		missed += c.missed
		most = max(most, c.most/float64(min(load.channels, load.viewers)))
		for _, w := range ways {
			if other := costs[w][i]; other.copies < c.copies*(1-treeFew) {
				worse++
			}
		}
	}
	r.Claim(missed == 0, "Cinema: every viewer gets each datagram once", "%d missed", missed)
	r.Claim(most <= 1+treeSlack, "Cinema: a link carries each channel once at most", "%.2f copies of each channel on the fullest link", most)
	r.Claim(worse == 0, "no other way has fewer copies", "%d of %d do", worse, len(loads)*(len(ways)-1))
	last := len(loads) - 1
	many, few := costs[wayUnicast][last], costs[wayCinema][last]
	r.Claim(few.copies < many.copies, fmt.Sprintf("%d channels, %d viewers: fewer copies than unicast", loads[last].channels, loads[last].viewers), "%.0f of %.0f", few.copies, many.copies)
}

// treeTimesResult adds a table of measured times beside those of the models. It leaves out times
// that were not measured.
func treeTimesResult(r *Result, t *treeRun) {
	cinema, multicast := t.times, t.routed
	if cinema == nil {
		cinema = &treeTimes{}
	}
	table := Table{
		Title:   "Until the first datagram of what is wanted, or the last one of what is not, in ms; models of section 6.3.3 without the request to the controller",
		Columns: []string{"", "measured: median", "p95", meanColumn, "n", "J_gc", "links", "multicast: median", "p95", "J_mc"},
	}
	for _, act := range treeActs {
		took := cinema.took[act]
		model := joinModel(act, cinema.hops[act], treeControl, treeDelay)
		row := []any{act, msOr(median(took)), msOr(quantile(took, 0.95)), meanText(took, 1, 1), len(took), ms1(inMS(model)), cinema.hops[act]}
		row = append(row, multicastCells(act, multicast)...)
		table.Add(row...)
		if len(took) == 0 {
			continue
		}
		r.Claim(median(took) <= inMS(model)+treeProcessing, fmt.Sprintf("%s: at most %d ms more than the model (median)", act, treeProcessing), "%.1f ms, model %.1f ms", median(took), inMS(model))
	}
	r.Tables = append(r.Tables, table)
	r.Note("pimd's times are those of its timers, which are seconds, and not of the links that J_mc is made of. What only the kernel of a viewer's own host does is left out. By J_mc who leaves is rid of a group at once; measured is until the router sends nothing more of it to the host.")
}

// msOr returns the text of a time in ms that may not have been measured.
func msOr(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return ms1(v)
}

func multicastCells(act string, m *treeTimes) []any {
	model := ms1(inMS(multicastModel(act, treeToRP, treeRPToSource, treeDelay)))
	if m == nil {
		m = &treeTimes{}
	}
	return []any{msOr(median(m.took[act])), msOr(quantile(m.took[act], 0.95)), model}
}

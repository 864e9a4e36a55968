package experiment

import (
	"fmt"
	"slices"
	"time"
)

func startResult(p startPlan, runs map[startCell][]startRun) *Result {
	r := &Result{Network: fmt.Sprintf("two switches, %v between them, its queue one bandwidth-delay product", startLine)}
	for _, direction := range p.directions {
		for _, loss := range p.losses {
			t := Table{Title: fmt.Sprintf("Seconds for a file, %s, %s %% loss (median; share of what the link allows; packets dropped by its queue)", direction, percent(loss)), Columns: []string{"MB", "ideal"}}
			t.Columns = append(t.Columns, p.measured()...)
			for _, size := range p.megabytes {
				c := startCell{loss: loss, direction: direction, megabytes: size}
				row := []any{size, fmt.Sprintf("%.2f", c.ideal().Seconds())}
				for _, c.way = range p.measured() {
					took, dropped := medianRun(runs[c])
					row = append(row, fmt.Sprintf("%.2f (%.0f %%; %.1f %%)", took.Seconds(), 100*c.ideal().Seconds()/took.Seconds(), 100*dropped))
				}
				t.Add(row...)
			}
			r.Tables = append(r.Tables, t)
		}
	}
	claimStart(r, p, runs)
	r.Note("ideal: two round trips and the file's bytes at the link's rate, as if nothing had a header. Where agents know twice the rate, the link has half of its own while they are measured. Times are curl's, of a connection of its own. The direct connection is ordinary cubic.")
	return r
}

// startBars holds the shares of the link's ideal that a transfer over a known path must reach, by
// loss and megabytes. The first transfer over a known link must reach knownLinkShare of these
// shares.
var startBars = map[float64]map[int]float64{5e-4: {5: 0.80, 50: 0.85, 500: 0.93}, 5e-3: {5: 0.60, 50: 0.75, 500: 0.88}}

const knownLinkShare = 0.85

// wrongShare is the share of startBars that a transfer must reach when the known rate is wrong.
const wrongShare = 0.8

// measured returns the names of all that is measured: the plan's ways, and for each way with a
// wrong rate the transfers that follow its own.
func (p startPlan) measured() (all []string) {
	for _, way := range p.ways {
		if all = append(all, way); way == wayTwice || way == wayHalf {
			all = append(all, nextOf(way))
		}
	}
	return all
}

func claimStart(r *Result, p startPlan, runs map[startCell][]startRun) {
	for _, way := range p.measured() {
		for _, loss := range p.losses {
			for _, size := range p.megabytes {
				c := startCell{loss: loss, megabytes: size, way: way}
				switch bar := startBars[loss][size]; {
				case bar == 0:
				case way == wayKnownPath, way == nextOf(wayTwice), way == nextOf(wayHalf):
					p.claimShare(r, runs, c, bar)
				case way == wayTwice, way == wayHalf:
					p.claimShare(r, runs, c, wrongShare*bar)
				case way == wayKnownLink:
					p.claimShare(r, runs, c, knownLinkShare*bar)
				case way == wayUnknownPath && slices.Contains(p.ways, wayProxy):
					p.claimPeer(r, runs, c)
				}
			}
		}
	}
}

// claimShare adds a claim about how close a cell comes to the link's ideal, in both directions.
func (p startPlan) claimShare(r *Result, runs map[startCell][]startRun, c startCell, bar float64) {
	worst, most := 1.0, 0.0
	for _, c.direction = range p.directions {
		took, dropped := medianRun(runs[c])
		worst, most = min(worst, c.ideal().Seconds()/took.Seconds()), max(most, dropped)
	}
	r.Claim(worst >= bar, fmt.Sprintf("%s: %d MB in at least %.0f %% of what the link allows at %s %% loss", c.way, c.megabytes, 100*bar, percent(c.loss)), "%.0f %%", 100*worst)
	r.Claim(most <= 0.02, fmt.Sprintf("%s: at most 2 %% dropped by the queue for %d MB at %s %% loss", c.way, c.megabytes, percent(c.loss)), "%.1f %%", 100*most)
}

// claimPeer adds a claim that an unknown path is no slower than the proxies.
func (p startPlan) claimPeer(r *Result, runs map[startCell][]startRun, c startCell) {
	worst := 0.0
	for _, c.direction = range p.directions {
		proxy := c
		proxy.way = wayProxy
		took, _ := medianRun(runs[c])
		theirs, _ := medianRun(runs[proxy])
		worst = max(worst, took.Seconds()/theirs.Seconds())
	}
	r.Claim(worst <= 1+noise, fmt.Sprintf("%s: %d MB no slower than by %s at %s %% loss", c.way, c.megabytes, wayProxy, percent(c.loss)), "%.2f of its time", worst)
}

// medianRun returns the median time, and the median share of packets that the queue has dropped.
func medianRun(runs []startRun) (took time.Duration, dropped float64) {
	var times, shares []float64
	for _, r := range runs {
		times = append(times, r.took.Seconds())
		shares = append(shares, float64(r.dropped)/float64(max(r.passed, 1)))
	}
	return time.Duration(median(times) * float64(time.Second)), median(shares)
}

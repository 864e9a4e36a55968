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
			t := Table{Title: fmt.Sprintf("Seconds for a file, %s, %s %% loss (median; share of what the link allows; packets dropped by its queue; mean queueing delay)", direction, percent(loss)), Columns: []string{"MB", "ideal"}}
			t.Columns = append(t.Columns, p.measured()...)
			for _, size := range p.megabytes {
				c := startCell{loss: loss, direction: direction, megabytes: size}
				row := []any{size, fmt.Sprintf("%.2f", c.ideal().Seconds())}
				for _, c.way = range p.measured() {
					row = append(row, startText(c, runs[c]))
				}
				t.Add(row...)
			}
			r.Tables = append(r.Tables, t)
		}
	}
	claimStart(r, p, runs)
	r.Note("ideal: two round trips and the file's bytes at the link's rate, as if nothing had a header. Where agents know twice the rate, the link has half of its own while they are measured. Where the rate is halved or doubled meanwhile, it goes from %.0f to %.0f Mbit/s or back after half of the ideal time at the first rate, and the ideal is that of the changing link. Drops and delays are those of the direction of the file. Times are curl's, of a connection of its own. The direct connection is ordinary cubic.", startLine.Rate/1e6, startLine.Rate/2e6)
	return r
}

// startLossOfDemo is the loss of the demo's link.
const startLossOfDemo = 5e-4

// startBars holds the shares of the link's ideal that a transfer over a known path must reach, by
// loss and megabytes. 100 MB is what the demo transfers over its link. The first transfer over a
// known link must reach knownLinkShare of these shares.
var startBars = map[float64]map[int]float64{
	startLossOfDemo: {5: 0.80, 50: 0.85, 100: 0.85, 500: 0.93},
	5e-3:            {5: 0.60, 50: 0.75, 500: 0.88},
}

const knownLinkShare = 0.85

// wrongShare is the share of startBars that a transfer must reach when the known rate is wrong. It
// holds also when the rate becomes wrong in the middle: that concerns fewer bytes, but agents are
// not told. What the queue drops then has no bound, because it fills before any sender can know
// that the link has become slower.
const wrongShare = 0.8

// dropBound bounds the packets that the link's queue drops for each that it carries.
const dropBound = 0.02

// queuedBound bounds the mean queueing delay on the demo's link of transfers of queuedSizes, in MB.
const queuedBound = 10 * time.Millisecond

var queuedSizes = []int{100, 500}

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

// startText returns the text of a cell of the table.
func startText(c startCell, runs []startRun) string {
	if len(runs) == 0 { // the link does not change during a transfer of this size
		return ""
	}
	m := medianStart(c, runs)
	return fmt.Sprintf("%.2f (%.0f %%; %.1f %%; %.0f ms)", m.seconds, 100/m.ideals, 100*m.dropped, 1e3*m.queued)
}

func claimStart(r *Result, p startPlan, runs map[startCell][]startRun) {
	for _, way := range p.measured() {
		for _, loss := range p.losses {
			for _, size := range p.megabytes {
				bar, known := startBars[loss][size]
				if c := (startCell{loss: loss, megabytes: size, way: way}); known && c.isMeasured() {
					p.claimCell(r, runs, c, bar)
				}
			}
		}
	}
}

// claimCell adds the claims about a cell, each about the worse of both directions.
func (p startPlan) claimCell(r *Result, runs map[startCell][]startRun, c startCell, bar float64) {
	switch c.way {
	case wayKnownPath, nextOf(wayTwice), nextOf(wayHalf):
		p.claimShare(r, runs, c, bar)
		p.claimDropped(r, runs, c)
	case wayTwice, wayHalf:
		p.claimShare(r, runs, c, wrongShare*bar)
		p.claimDropped(r, runs, c)
	case wayHalved, wayDoubled:
		p.claimShare(r, runs, c, wrongShare*bar)
	case wayKnownLink:
		p.claimShare(r, runs, c, knownLinkShare*bar)
		p.claimDropped(r, runs, c)
	case wayUnknownPath:
		p.claimPeer(r, runs, c)
		p.claimDropped(r, runs, c)
	}
	if c.way == wayKnownPath && c.loss == startLossOfDemo && slices.Contains(queuedSizes, c.megabytes) {
		most := p.most(runs, c, func(m startMedian) float64 { return m.queued })
		r.Claim(most <= queuedBound.Seconds(), fmt.Sprintf("%s: %d MB wait at most %v in the queue on average at %s %% loss", c.way, c.megabytes, queuedBound, percent(c.loss)), "%.1f ms", 1e3*most)
	}
}

// most returns the largest median of a cell's two directions.
func (p startPlan) most(runs map[startCell][]startRun, c startCell, figure func(startMedian) float64) (most float64) {
	for _, c.direction = range p.directions {
		most = max(most, figure(medianStart(c, runs[c])))
	}
	return most
}

// claimShare adds a claim about how close a cell comes to the link's ideal.
func (p startPlan) claimShare(r *Result, runs map[startCell][]startRun, c startCell, bar float64) {
	worst := 1 / p.most(runs, c, func(m startMedian) float64 { return m.ideals })
	r.Claim(worst >= bar, fmt.Sprintf("%s: %d MB in at least %.0f %% of what the link allows at %s %% loss", c.way, c.megabytes, 100*bar, percent(c.loss)), "%.0f %%", 100*worst)
}

// claimDropped adds a claim about the packets that the link's queue has dropped.
func (p startPlan) claimDropped(r *Result, runs map[startCell][]startRun, c startCell) {
	most := p.most(runs, c, func(m startMedian) float64 { return m.dropped })
	r.Claim(most <= dropBound, fmt.Sprintf("%s: at most %.0f %% dropped by the queue for %d MB at %s %% loss", c.way, 100*dropBound, c.megabytes, percent(c.loss)), "%.1f %%", 100*most)
}

// claimPeer adds a claim that an unknown path is no slower than the proxies, if they are measured.
func (p startPlan) claimPeer(r *Result, runs map[startCell][]startRun, c startCell) {
	if !slices.Contains(p.ways, wayProxy) {
		return
	}
	worst := 0.0
	for _, c.direction = range p.directions {
		proxy := c
		proxy.way = wayProxy
		worst = max(worst, medianStart(c, runs[c]).seconds/medianStart(proxy, runs[proxy]).seconds)
	}
	r.Claim(worst <= 1+noise, fmt.Sprintf("%s: %d MB no slower than by %s at %s %% loss", c.way, c.megabytes, wayProxy, percent(c.loss)), "%.2f of its time", worst)
}

// startMedian holds the medians of a cell's transfers.
type startMedian struct {
	seconds float64
	ideals  float64 // the time in multiples of what the link allows
	dropped float64 // packets that its queue has dropped for each that it has carried
	queued  float64 // mean queueing delay in seconds
}

func medianStart(c startCell, runs []startRun) startMedian {
	of := func(figure func(startRun) float64) float64 {
		var all []float64
		for _, r := range runs {
			all = append(all, figure(r))
		}
		return median(all)
	}
	m := startMedian{
		seconds: of(func(r startRun) float64 { return r.took.Seconds() }),
		dropped: of(func(r startRun) float64 { return r.dropShare() }),
		queued:  of(func(r startRun) float64 { return r.queued.Seconds() }),
	}
	m.ideals = m.seconds / c.ideal().Seconds()
	return m
}

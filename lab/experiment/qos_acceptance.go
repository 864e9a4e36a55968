package experiment

import (
	"context"
	_ "embed"
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

func qosAcceptance() Experiment {
	return Experiment{
		Name:     "qos-acceptance",
		Title:    "Twenty flows of 10 Mbit/s over links of 15: how many are accepted, and what they get",
		Question: "How many flows can be given what they require, and do they get it while the others take the rest?",
		Source:   "QoS dissertation 2018, section 3.4.2, figure 3.10; its appendix is lab/experiment/data/qos-acceptance.csv",
		Varies:   []string{"run", "refused"},
		Run:      runQoSAcceptance,
	}
}

// acceptanceTrunks are the links between the five switches. Figure 3.9 is not available to us. Of
// the 728 connected graphs of five switches this is the one in which algorithm 1, with TCP sharing
// links fairly, decides most like the appendix: 89 of 100 flows; the next best has 84.
var acceptanceTrunks = [][2]string{{"s1", "s2"}, {"s1", "s3"}, {"s2", "s3"}, {"s2", "s4"}, {"s3", "s5"}, {"s4", "s5"}}

const (
	acceptanceTrunkRate = 15e6
	acceptancePerSwitch = 4
	acceptanceSwitches  = 5
	// keptAtLeast is the share of its promised rate, in percent, that an accepted flow must reach.
	keptAtLeast = 95
)

// These are the ways to treat a flow for which there is no room when it begins: refuse it, as in
// the dissertation, or let it wait until there is room.
const (
	refusedStays = "stays"
	refusedWaits = "waits"
)

//go:embed data/qos-acceptance.csv
var acceptanceText string

// publishedFlow is a flow of the dissertation's appendix.
type publishedFlow struct {
	from, to    string
	start, last int // seconds
	accepted    bool
	mbit        float64
}

// publishedRuns reads the appendix.
func publishedRuns() (map[int][]publishedFlow, error) {
	rows, err := csv.NewReader(strings.NewReader(acceptanceText)).ReadAll()
	if err != nil {
		return nil, err
	}
	out := map[int][]publishedFlow{}
	for _, row := range rows[1:] {
		var n [4]int // run, start, duration, kbit/s
		for i, column := range []int{0, 3, 4, 6} {
			if n[i], err = strconv.Atoi(row[column]); err != nil {
				return nil, fmt.Errorf("row %v: %w", row, err)
			}
		}
		out[n[0]] = append(out[n[0]], publishedFlow{row[1], row[2], n[1], n[2], row[5] == "True", float64(n[3]) / 1000})
	}
	return out, nil
}

func acceptanceHosts() (out [][2]string) {
	for i := range acceptanceSwitches * acceptancePerSwitch {
		out = append(out, [2]string{fmt.Sprintf("h%d", i+1), fmt.Sprintf("s%d", i/acceptancePerSwitch+1)})
	}
	return out
}

// compress returns a run with its times divided by a factor. The first flow begins at once.
func compress(run []publishedFlow, factor int) (out []qosFlow) {
	scaled := func(seconds int) time.Duration { return time.Duration(seconds) * time.Second / time.Duration(factor) }
	for i, f := range run {
		out = append(out, qosFlow{
			number: i + 1, from: f.from, to: f.to, critical: true, start: scaled(f.start - run[0].start), lasts: scaled(f.last),
		})
	}
	return out
}

// acceptanceRun is a run of this experiment beside the published one.
type acceptanceRun struct {
	number    int
	published []publishedFlow
	flows     []*qosOutcome
}

func runQoSAcceptance(ctx context.Context, env *Env) (*Result, error) {
	published, err := publishedRuns()
	if err != nil {
		return nil, err
	}
	numbers, err := chosen(env.Only, "run", slices.Sorted(maps.Keys(published)), strconv.Itoa)
	if err != nil {
		return nil, err
	}
	refused, err := chosen(env.Only, "refused", []string{refusedStays, refusedWaits}, strings.Clone)
	if err != nil {
		return nil, err
	}
	if env.Only["run"] == nil {
		numbers = numbers[:pick(env.Scale, 3, len(numbers), len(numbers))]
	}
	return runAcceptance(ctx, env, published, numbers, refused[0] == refusedStays, pick(env.Scale, 10, 10, 5))
}

// runAcceptance repeats some of the runs, with times divided by a factor.
func runAcceptance(ctx context.Context, env *Env, published map[int][]publishedFlow, numbers []int, once bool, factor int) (*Result, error) {
	raw, err := env.CSV("flows", "run", "flow", "from", "to", "accepted", "at_once", "path", "moves", "reason", "kept_percent", "mean_mbit_s", "published_accepted", "published_mbit_s")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(numbers))
	var runs []*acceptanceRun
	q := &qosNetwork{name: "accept", trunk: acceptanceTrunkRate, trunks: acceptanceTrunks, hosts: acceptanceHosts()}
	err = q.up(ctx, env, func(ctx context.Context, l *lab.Lab) error {
		return q.controlled(ctx, env, l, factor, func(ctx context.Context, n *testbed.Network) error {
			if err := defineCritical(ctx, n, once); err != nil {
				return err
			}
			for _, number := range numbers {
				env.Step("run %d", number)
				r := &acceptanceRun{number: number, published: published[number]}
				runs = append(runs, r)
				if err := r.measure(ctx, l, n, factor); err != nil {
					return fmt.Errorf("run %d: %w", number, err)
				}
				s := r.ours()
				env.Logf("accepted at once %d (published %d), later %d; the least got %.1f %%", s.atOnce, r.theirs().ever, s.ever-s.atOnce, s.least())
				if err := r.save(raw); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return acceptanceResult(runs, once, factor), nil
}

// measure carries the flows once nothing is left of the run before.
func (r *acceptanceRun) measure(ctx context.Context, l *lab.Lab, n *testbed.Network, factor int) (err error) {
	if err := tasks.Sleep(ctx, settleRuns); err != nil {
		return err
	}
	r.flows, err = runFlows(ctx, l, n, compress(r.published, factor))
	return err
}

func (r *acceptanceRun) save(raw *CSV) error {
	for i, o := range r.flows {
		ever, atOnce := o.accepted()
		_, path := placeText(o)
		moves, reason, kept := 0, "", ""
		if o.place != nil {
			moves, reason = o.place.Moves, o.place.Reason
		}
		if v, ok := o.keptPercent(); ok {
			kept = fmt.Sprint(v)
		}
		p := r.published[i]
		if err := raw.Row(r.number, o.number, o.from, o.to, ever, atOnce, path, moves, reason, kept, o.log.Mbit(), p.accepted, p.mbit); err != nil {
			return err
		}
	}
	return nil
}

// summary holds a run's figures, measured or published.
type summary struct {
	ever, atOnce, unmeasured, short int
	kept                            []float64 // percent of the promised rate that accepted flows have reached
	accepted                        []float64 // goodput of accepted flows
	all                             []float64
}

// least returns the smallest percentage that an accepted flow has reached.
func (s *summary) least() float64 { return slices.Min(append(s.kept, 100)) }

func (r *acceptanceRun) ours() (s summary) {
	for _, o := range r.flows {
		s.all = append(s.all, o.log.Mbit())
		ever, atOnce := o.accepted()
		if atOnce {
			s.atOnce++
		}
		if !ever {
			continue
		}
		s.ever++
		s.accepted = append(s.accepted, o.log.Mbit())
		v, ok := o.keptPercent()
		if !ok {
			s.unmeasured++
			continue
		}
		if s.kept = append(s.kept, v); v < keptAtLeast {
			s.short++
		}
	}
	return s
}

func (r *acceptanceRun) theirs() (s summary) {
	for _, f := range r.published {
		s.all = append(s.all, f.mbit)
		if f.accepted {
			s.ever++
			s.accepted = append(s.accepted, f.mbit)
		}
	}
	return s
}

// acceptanceTotal adds up the figures of all runs for the claims.
type acceptanceTotal struct {
	atOnce, later, published, short, unmeasured int
	over                                        []int // runs whose published flows cannot all have been promised their rate
	fewer                                       []int // other runs in which fewer flows were accepted at once than published
	least                                       float64
	publishedSlowest                            float64
}

func (t *acceptanceTotal) add(r *acceptanceRun, o, d *summary) {
	t.atOnce, t.later, t.published = t.atOnce+o.atOnce, t.later+o.ever-o.atOnce, t.published+d.ever
	t.short, t.unmeasured = t.short+o.short, t.unmeasured+o.unmeasured
	t.least, t.publishedSlowest = min(t.least, o.least()), min(t.publishedSlowest, slices.Min(append(d.accepted, 10)))
	switch {
	case !promisable(r.published):
		t.over = append(t.over, r.number)
	case o.atOnce < d.ever:
		t.fewer = append(t.fewer, r.number)
	}
}

func acceptanceResult(runs []*acceptanceRun, once bool, factor int) *Result {
	res := &Result{Network: fmt.Sprintf("5 switches, 20 hosts, 15 Mbit/s between switches, 10 Mbit/s to hosts; times divided by %d", factor)}
	t := Table{Title: "Goodput in Mbit/s, published in brackets", Columns: []string{"run", "accepted at once", "later", "least kept, %", "accepted flows, mean", "slowest", "all flows, mean"}}
	total := acceptanceTotal{least: 100, publishedSlowest: 10}
	p := Plot{Name: "fig3-10", Title: "Mean goodput by the number of accepted flows", X: "accepted flows of 20", Y: "Mbit/s"}
	ourAll, ourAccepted := map[int][]float64{}, map[int][]float64{}
	theirAll, theirAccepted := map[int][]float64{}, map[int][]float64{}
	for _, r := range runs {
		o, d := r.ours(), r.theirs()
		total.add(r, &o, &d)
		t.Add(r.number, fmt.Sprintf("%d (%d)", o.atOnce, d.ever), o.ever-o.atOnce, fmt.Sprintf("%.1f", o.least()), fmt.Sprintf("%s (%.2f)", meanText(o.accepted, 1, 2), mean(d.accepted)),
			fmt.Sprintf("%.2f (%.2f)", slices.Min(append(o.accepted, 10)), slices.Min(append(d.accepted, 10))), fmt.Sprintf("%s (%.2f)", meanText(o.all, 1, 2), mean(d.all)))
		ourAll[o.ever], ourAccepted[o.ever] = append(ourAll[o.ever], o.all...), append(ourAccepted[o.ever], o.accepted...)
		theirAll[d.ever], theirAccepted[d.ever] = append(theirAll[d.ever], d.all...), append(theirAccepted[d.ever], d.accepted...)
	}
	res.Tables = append(res.Tables, t)
	p.Series = []Series{byCount("all flows", ourAll), byCount("accepted flows", ourAccepted), byCount("all flows", theirAll), byCount("accepted flows", theirAccepted)}
	p.Series[2].Published, p.Series[3].Published = true, true
	res.Plots = append(res.Plots, p)
	total.claim(res, len(runs), once)
	return res
}

func (t *acceptanceTotal) claim(res *Result, runs int, once bool) {
	res.Claim(t.short == 0, fmt.Sprintf("every accepted flow gets at least %d %% of the 10 Mbit/s that it was promised (published: down to %.2f Mbit/s)", keptAtLeast, t.publishedSlowest),
		"%d of %d get less; the least is %.1f %%", t.short, t.atOnce+t.later, t.least)
	res.Claim(t.atOnce >= t.published && len(t.fewer) == 0, "at least as many flows are accepted at once as published, altogether and in every run whose published flows can all have been promised their rate",
		"altogether %d, published %d; fewer in %d of %d runs %v; %d more are accepted later", t.atOnce, t.published, len(t.fewer), runs-len(t.over), t.fewer, t.later)
	res.Note("A promise is of bits as links count them, headers included; 1460 of the 1514 bytes of a frame are payload, since hosts send no TCP timestamps. Goodput is payload: %.2f Mbit/s of it are %d %% of the promise. A flow that shares its host's link with the acknowledgements of another can have %.2f, %.1f %%.",
		required/1e6*payloadShare*keptAtLeast/100, keptAtLeast, sharedWithout, sharedWithout/payloadShare*10)
	res.Note("What a flow gets of its promise is measured from %v after its first packet, when TCP has filled the link, to its end; means are of whole flows.", settled)
	if once {
		res.Note("A flow for which there is no room when it begins is not accepted later, as in the dissertation; --only refused=%s lets it wait, which takes room from those that begin later.", refusedWaits)
	} else {
		res.Note("Flows that were accepted later than at once are measured from %v after that; %d had less than two seconds left and are not.", recovery, t.unmeasured)
	}
	if len(t.over) > 0 {
		res.Note("In runs %v no paths over these links give every published accepted flow its 10 Mbit/s: some were promised the same capacity twice.", t.over)
	}
	res.Note("The published topology is a drawing that we do not have; the links are those under which algorithm 1 decides most like the published flows (89 %% of 600).")
}

// byCount returns the mean over runs with the same number of accepted flows.
func byCount(label string, values map[int][]float64) Series {
	s := Series{Label: label}
	for _, n := range slices.Sorted(maps.Keys(values)) {
		s.Point(float64(n), mean(values[n]))
	}
	return s
}

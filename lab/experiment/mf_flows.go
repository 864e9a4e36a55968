package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

const (
	// flowOffers is the rate of each flow in bit/s, and flowChunk the bytes of a chunk.
	flowOffers, flowChunk = 50e6, 1_000_000
	// mostFlows is the largest number of flows at the same time.
	mostFlows = 6
	// flowCosts is the share of its rate that a flow may lose when another one is added.
	flowCosts = 0.01
)

func mfFlows() Experiment {
	return Experiment{
		Name:     "mf-flows",
		Title:    "Several flows of chunks at once, where the link has room for all",
		Question: "How much does a further flow take from the present ones?",
		Source:   "MobilityFirst thesis 2013, table 4.2: 43 to 7.5 Mbit/s less for each further flow",
		Run:      runMFFlows,
	}
}

func runMFFlows(ctx context.Context, env *Env) (*Result, error) {
	top := lab.Topology{Name: "mfflows", Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}}, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}}
	for _, ends := range [][2]string{{"a", "s1"}, {"s1", "s2"}, {"b", "s2"}} {
		top.Links = append(top.Links, lab.Both(ends[0], ends[1], delayline.Params{}))
	}
	raw, err := env.CSV("flows", "flows", "run", "flow", "bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	r := &Result{Network: "two hosts, and two switches with a controller between them; no link is shaped, and all of it shares this machine's processors"}
	err = env.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: env.Binary, LogDir: env.Dir})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		rig := &chunksRig{env: env, lab: l, mtu: 1500}
		defer rig.stop()
		c, err := rig.carrier(ctx, byGUID)
		if err != nil {
			return err
		}
		names := []string{c.name}
		for len(names) < mostFlows {
			name, err := rig.receiver(ctx, c, len(names))
			if err != nil {
				return err
			}
			names = append(names, name)
		}
		return rig.flows(ctx, c, names, raw, r)
	})
	return r, err
}

// flows measures from one flow to as many as there are names.
func (g *chunksRig) flows(ctx context.Context, c *chunksCarrier, names []string, raw *CSV, r *Result) error {
	repeats := pick(g.env.Scale, 1, 5, 10)
	during := pick(g.env.Scale, 3*time.Second, 5*time.Second, 10*time.Second)
	g.env.Steps(repeats * len(names))
	rates := make([][]float64, len(names)+1) // of each flow, by the number of flows
	for run := range repeats {
		for n := 1; n <= len(names); n++ {
			g.env.Step("%d flows", n)
			each, err := g.atOnce(ctx, c, names[:n], during)
			if err != nil {
				return fmt.Errorf("%d flows: %w", n, err)
			}
			for i, rate := range each {
				if err := raw.Row(n, run+1, i+1, rate); err != nil {
					return err
				}
			}
			rates[n] = append(rates[n], each...)
		}
	}
	t := Table{Title: "Each flow, medians", Columns: []string{"flows", "Mbit/s", "less for each further flow"}}
	alone, worst := median(rates[1]), 0.0
	for n := 1; n <= len(names); n++ {
		rate, cost := median(rates[n]), 0.0
		if n > 1 {
			cost = (1 - rate/alone) / float64(n-1)
		}
		worst = max(worst, cost)
		t.Add(n, fmt.Sprintf("%.2f", rate/1e6), fmt.Sprintf("%.2f %%", cost*100))
	}
	r.Tables = append(r.Tables, t)
	r.Claim(alone >= 0.95*flowOffers, fmt.Sprintf("one flow carries what it is offered, %.0f Mbit/s, but for 5 %%", flowOffers/1e6), "%.2f Mbit/s", alone/1e6)
	r.Claim(worst <= flowCosts, "a further flow costs each at most 1 %", "%.2f %%", worst*100)
	r.Note("Each flow is a sluice mf perf --rate of one host to a sluice mf recv of its own at the other: chunks of %d kB, %.0f Mbit/s, counted when they are taken. Published are 2 to 6 flows that had the link full.", flowChunk/1000, flowOffers/1e6)
	return nil
}

// atOnce sends a flow to each name at the same time, and returns the rate of each.
func (g *chunksRig) atOnce(ctx context.Context, c *chunksCarrier, names []string, during time.Duration) ([]float64, error) {
	rates := make([]float64, len(names))
	all, ctx := errgroup.WithContext(ctx)
	for i, name := range names {
		all.Go(func() error {
			got, err := g.mfPerf(ctx, c, name, flowChunk, "--rate", units.FormatRate(flowOffers), "--time", during.String())
			rates[i] = got.BitsPerSecond
			return err
		})
	}
	return rates, all.Wait()
}

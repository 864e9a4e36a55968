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
	// flowLink is the rate of each host's link in bit/s. Several such flows leave the machine's
	// processors idle for most of the time, so that only what flows share can slow them down.
	flowLink = 20e6
	// flowChunks is the least number of chunks that a flow carries in a measurement.
	flowChunks = 4
	// mostFlows is the largest number of flows at the same time.
	mostFlows = 3
	// flowAlone is the share of its link's rate that a flow has to reach by itself, frames' headers
	// included. flowCosts is the share of its rate that a flow may lose when another one is added.
	flowAlone, flowCosts = 0.93, 0.01
)

// publishedFlows is table 4.2 of the thesis: the rate of each of one, two and three flows in Mbit/s,
// and how much less each further flow leaves it, by the megabytes of a chunk.
var publishedFlows = map[int]struct {
	rates [3]float64
	less  float64
}{
	1:  {[3]float64{493, 440, 407}, 43},
	2:  {[3]float64{653, 612, 577}, 38},
	4:  {[3]float64{729, 713, 693}, 18},
	8:  {[3]float64{794, 784, 769}, 12.5},
	10: {[3]float64{818, 810, 805}, 7.5},
}

func mfFlows() Experiment {
	return Experiment{
		Name:     "mf-flows",
		Title:    "Several flows of chunks at once, where the links have room for all",
		Question: "How much does a further flow take from the present ones?",
		Source:   "MobilityFirst thesis 2013, table 4.2: one to three flows with chunks of 1 to 10 MB, 43 to 7.5 Mbit/s less for each further flow",
		Run:      runMFFlows,
	}
}

func runMFFlows(ctx context.Context, env *Env) (*Result, error) {
	top := lab.Topology{Name: "mfflows", Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}}, Links: []lab.Link{lab.Both("s1", "s2", delayline.Params{})}}
	for i := range mostFlows {
		for _, end := range [][2]string{{"a", "s1"}, {"b", "s2"}} {
			host := fmt.Sprint(end[0], i+1)
			top.Hosts = append(top.Hosts, lab.Host{Name: host})
			top.Links = append(top.Links, lab.Both(host, end[1], delayline.Params{Rate: flowLink}))
		}
	}
	raw, err := env.CSV("flows", "chunk_bytes", "flows", "run", "flow", "bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	r := &Result{Network: fmt.Sprintf("%d pairs of hosts, each with links of %s of its own, and two switches with a controller; the switches and the link between them, which all share, are not shaped", mostFlows, units.FormatRate(flowLink))}
	err = env.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: env.Binary, LogDir: env.Dir})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		rig := &chunksRig{env: env, lab: l, mtu: 1500}
		defer rig.stop()
		var carriers []*chunksCarrier
		for i := range mostFlows {
			c, err := rig.carrier(ctx, byGUID, fmt.Sprint("a", i+1), fmt.Sprint("b", i+1))
			if err != nil {
				return err
			}
			carriers = append(carriers, c)
		}
		return rig.flows(ctx, carriers, raw, r)
	})
	return r, err
}

// flows measures chunks of each size, from one flow to as many as there are carriers.
func (g *chunksRig) flows(ctx context.Context, carriers []*chunksCarrier, raw *CSV, r *Result) error {
	repeats := pick(g.env.Scale, 2, 3, 10)
	during := pick(g.env.Scale, 3*time.Second, 6*time.Second, 10*time.Second)
	sizes := pick(g.env.Scale, []int{1, 4}, []int{1, 2, 4, 8, 10}, []int{1, 2, 4, 8, 10})
	g.env.Steps(len(sizes) * repeats * len(carriers))
	t := Table{
		Title:   "Rate of each flow: means with 95 % intervals",
		Columns: []string{"chunks", "flows", "published Mbit/s", "less for each further flow", "ours Mbit/s", "less for each further flow"},
	}
	lowest, worst := 1.0, 0.0
	for _, size := range sizes {
		during := max(during, time.Duration(flowChunks*float64(size)*8e6/flowLink*float64(time.Second)))
		rates := make([][]float64, len(carriers)+1) // of each flow, by the number of flows
		for run := range repeats {
			for n := 1; n <= len(carriers); n++ {
				g.env.Step("%d flows, chunks of %d MB", n, size)
				each, err := g.atOnce(ctx, carriers[:n], size*1_000_000, during)
				if err != nil {
					return fmt.Errorf("%d flows: %w", n, err)
				}
				for i, rate := range each {
					if err := raw.Row(size*1_000_000, n, run+1, i+1, rate); err != nil {
						return err
					}
				}
				rates[n] = append(rates[n], each...)
			}
		}
		alone := mean(rates[1])
		lowest = min(lowest, alone/flowLink)
		for n := 1; n <= len(carriers); n++ {
			published, publishedLess, less := "", "", ""
			if p := publishedFlows[size]; n <= len(p.rates) {
				published = fmt.Sprint(p.rates[n-1])
				if n == len(p.rates) {
					publishedLess = fmt.Sprintf("%.1f %%", 100*p.less/p.rates[0])
				}
			}
			if n > 1 {
				cost := (1 - mean(rates[n])/alone) / float64(n-1)
				worst, less = max(worst, cost), fmt.Sprintf("%.2f %%", cost*100)
			}
			t.Add(fmt.Sprintf("%d MB", size), n, published, publishedLess, meanText(rates[n], 1e-6, 2), less)
		}
	}
	r.Tables = append(r.Tables, t)
	r.Claim(lowest >= flowAlone, fmt.Sprintf("one flow carries at least %.0f %% of its link's rate, with chunks of every size", 100*flowAlone), "%.1f %%", 100*lowest)
	r.Claim(worst <= flowCosts, "a further flow costs each at most 1 %", "%.2f %%", worst*100)
	r.Note("Each flow is a sluice mf perf of one host to a sluice mf recv of another, as fast as chunks are taken; counted is what was taken until the last chunk was. Published are one to three flows, as fast as hosts of 1 Gbit/s and a switch carried them. Ours have links of %.0f Mbit/s, because all of it shares this machine's processors.", flowLink/1e6)
	return nil
}

// atOnce sends a flow by each carrier at the same time, and returns the rate of each.
func (g *chunksRig) atOnce(ctx context.Context, carriers []*chunksCarrier, size int, during time.Duration) ([]float64, error) {
	rates := make([]float64, len(carriers))
	all, ctx := errgroup.WithContext(ctx)
	for i, c := range carriers {
		all.Go(func() error {
			got, err := g.mfPerf(ctx, c, c.name, size, "--time", during.String())
			rates[i] = got.BitsPerSecond
			return err
		})
	}
	return rates, all.Wait()
}

package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

const (
	// multihomingWanted is the share of the sum of the rates of two links that chunks must reach if
	// they may use both.
	multihomingWanted = 0.9
	// multihomingLost bounds the time that a stream loses when one of its links fails.
	multihomingLost = 500 * time.Millisecond
	// multihomingChunk is the size of chunks.
	multihomingChunk = 100_000
)

// multihomingPair is a pair of links of a host, each to a switch of its own.
type multihomingPair struct {
	name  string
	links [2]delayline.Params
}

// multihomingPairs lists two pairs: links that are alike, and a fast link with one that is slower
// and longer.
var multihomingPairs = []multihomingPair{
	{"alike", [2]delayline.Params{{Rate: 50e6, Delay: time.Millisecond}, {Rate: 50e6, Delay: time.Millisecond}}},
	{"unlike", [2]delayline.Params{{Rate: 50e6, Delay: time.Millisecond}, {Rate: 20e6, Delay: 5 * time.Millisecond}}},
}

func mfMultihoming() Experiment {
	return Experiment{
		Name:     "mf-multihoming",
		Title:    "Chunks over two links at the same time, beside each of them",
		Question: "What share of the rate of two links do chunks reach that may use both, and what happens when one of the links fails?",
		Source:   "MobilityFirst's multihoming service",
		Varies:   []string{"links"},
		Run:      runMFMultihoming,
	}
}

func runMFMultihoming(ctx context.Context, env *Env) (*Result, error) {
	pairs, err := chosen(env.Only, "links", multihomingPairs, func(p multihomingPair) string { return p.name })
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("multihoming", "links", "what", "run", "bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	repeats := pick(env.Scale, 1, 3, 5)
	env.Steps(len(pairs) * repeats * len(multihomingWays))
	r := &Result{Network: "a host with two links, each to a switch of its own, and one with two that are not shaped; a link joins both switches"}
	t := Table{Title: "From application to application: means with 95 % intervals", Columns: []string{"links", "what", "Mbit/s"}}
	for _, p := range pairs {
		g := &multihomingRig{chunksRig: &chunksRig{env: env, raw: raw, rates: map[string][]float64{}}, pair: p, took: map[string][]float64{}}
		if err := g.run(ctx, repeats); err != nil {
			return nil, fmt.Errorf("links %s: %w", p.name, err)
		}
		g.report(r, &t)
	}
	r.Tables = append(r.Tables, t)
	r.Note("Links alike are of 50 Mbit/s and 1 ms each way; unlike: the second is of 20 Mbit/s and 5 ms. Chunks of %d bytes are sent by sluice mf perf and taken by sluice mf recv, counted until the last was. Ordinary chunks go by one link: here the other has been cut. That a link dies is silent: it loses everything, from half of the time on. What is lost by it is the time until all were taken, less what the chunks before it take by both links, and those after it by the second.", multihomingChunk)
	return r, nil
}

// multihomingWay is a way to send over the links.
type multihomingWay struct {
	name string
	cut  int // index of the link that is cut; -1 for none
	dies bool
	args []string
}

var multihomingWays = []multihomingWay{
	{"the first link", 1, false, nil},
	{"the second link", 0, false, nil},
	{"both", -1, false, []string{"--multihoming"}},
	{"both, of which the first dies", -1, true, []string{"--multihoming"}},
}

// multihomingRig is two hosts with two links each.
type multihomingRig struct {
	*chunksRig
	pair    multihomingPair
	carrier *chunksCarrier
	during  time.Duration        // how long chunks are sent
	took    map[string][]float64 // seconds until all chunks were acknowledged
}

// link returns the name of one of the sender's links.
func (g *multihomingRig) link(i int) string { return fmt.Sprintf("a-s%d", i+1) }

// run measures all ways over a pair of links.
func (g *multihomingRig) run(ctx context.Context, repeats int) error {
	top := lab.Topology{Name: "mfmultihoming", Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}}, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}}
	for i, s := range []string{"s1", "s2"} {
		top.Links = append(top.Links, lab.Both("a", s, g.pair.links[i]), lab.Both("b", s, delayline.Params{}))
	}
	top.Links = append(top.Links, lab.Both("s1", "s2", delayline.Params{}))
	return g.env.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: g.env.Binary, LogDir: g.env.Dir})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		g.lab = l
		defer g.stop()
		way := chunksWay{"links " + g.pair.name, []string{"--interface", "eth0", "--interface", "eth1"}}
		if g.carrier, err = g.chunksRig.carrier(ctx, way, "a", "b"); err != nil {
			return err
		}
		for run := range repeats {
			for _, way := range multihomingWays {
				g.env.Step("links %s: %s", g.pair.name, way.name)
				if err := g.measure(ctx, way, run+1); err != nil {
					return fmt.Errorf("%s: %w", way.name, err)
				}
			}
		}
		return nil
	})
}

// measure measures one way once, with the links in the state that the way needs.
func (g *multihomingRig) measure(ctx context.Context, way multihomingWay, run int) (err error) {
	set := func(i int, p delayline.Params) error { return g.lab.SetLinkParams(ctx, g.link(i), p) }
	for i, p := range g.pair.links {
		if i == way.cut {
			p = lossy(p)
		}
		if err := set(i, p); err != nil {
			return err
		}
	}
	during := pick(g.env.Scale, 4*time.Second, 8*time.Second, 20*time.Second)
	dead := make(chan error, 1)
	g.during = during
	if way.dies {
		timer := time.AfterFunc(during/2, func() { dead <- set(0, lossy(g.pair.links[0])) })
		defer func() {
			if !timer.Stop() {
				err = errors.Join(err, <-dead)
			}
		}()
	}
	got, err := g.mfPerf(ctx, g.carrier, g.carrier.name, multihomingChunk, append([]string{"--time", during.String()}, way.args...)...)
	if err != nil {
		return err
	}
	g.env.Logf("%.1f Mbit/s", got.BitsPerSecond/1e6)
	g.rates[way.name] = append(g.rates[way.name], got.BitsPerSecond)
	g.took[way.name] = append(g.took[way.name], float64(got.Chunks*multihomingChunk*8)/got.BitsPerSecond)
	return g.raw.Row(g.pair.name, way.name, run, got.BitsPerSecond)
}

// report adds the table and the claims.
func (g *multihomingRig) report(r *Result, t *Table) {
	rate := func(i int) float64 { return mean(g.rates[multihomingWays[i].name]) }
	for _, way := range multihomingWays {
		t.Add(g.pair.name, way.name, meanText(g.rates[way.name], 1e-6, 1))
	}
	first, second, both, dies := rate(0), rate(1), rate(2), rate(3)
	took, before := mean(g.took[multihomingWays[3].name]), g.during.Seconds()/2
	r.Claim(both >= multihomingWanted*(first+second), fmt.Sprintf("links %s: both at one time carry at least %.1f of what each does by itself, together", g.pair.name, multihomingWanted), "%.1f of %.1f Mbit/s", both/1e6, (first+second)/1e6)
	lost := took - before - (dies*took-both*before)/second // compared with the rate of both links before the cut, and of the second one after it
	r.Claim(lost <= multihomingLost.Seconds(), fmt.Sprintf("links %s: when the first dies the stream loses %v at most", g.pair.name, multihomingLost), "%.0f ms of %.1f s", lost*1e3, took)
}

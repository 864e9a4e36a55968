package experiment

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/lab/experiment/flowsim"
)

// The model is of the live experiment: its links and its pace. What the services do at
// intervals, by their default settings, is done at that pace, too.
const (
	modelLink      = fatTreeRate
	modelPace      = fatTreePace
	modelThreshold = 1_000_000 // bytes that a connection carries for each further subflow
	modelInterval  = 5 * time.Second / modelPace
	modelIdle      = 30 * time.Second / modelPace
	modelPaths     = 4
	// modelK is the tree of the dissertation, which claims are about.
	modelK = 6
)

// modelWay is how connections use the network.
type modelWay struct {
	name     string
	subflows int
	placed   bool // further subflows by the service's choice, not by hash
	ideal    bool
	// single has congestion control of each subflow by itself, as upstream Linux; the
	// dissertation's kernel coupled those of a connection (LIA).
	single bool
	// interval is that of the service's readings, if it is another than usual.
	interval time.Duration
	// published are the dissertation's mean shares of the two matrices, in percent.
	published [2]float64
}

// modelWays are those of the dissertation, and what may be had beside them.
func modelWays() []modelWay {
	return []modelWay{
		{name: "TCP, hash", subflows: 1, published: [2]float64{49.4, 36.6}},
		{name: "2 subflows, hash", subflows: 2, published: [2]float64{64.4, 52.4}},
		{name: "2 subflows, placed", subflows: 2, placed: true, published: [2]float64{77.8, 63.8}},
		{name: "3 subflows, hash", subflows: 3, published: [2]float64{72.1, 56}},
		{name: "3 subflows, placed", subflows: 3, placed: true, published: [2]float64{78.5, 67.4}},
		{name: "8 subflows, hash", subflows: 8},
		{name: "ideal", subflows: 1, ideal: true},
	}
}

// reads is how often the service reads what links carry.
func (w modelWay) reads() time.Duration { return cmp.Or(w.interval, modelInterval) }

// modelVariants are simulated in the dissertation's tree alone: without coupling, and with
// readings more and less often, as those of the default settings are in the lab.
func modelVariants() (all []modelWay) {
	for _, w := range modelWays() {
		if w.subflows > 1 {
			w.name, w.single, w.published = w.name+", single", true, [2]float64{}
			all = append(all, w)
		}
	}
	for _, d := range []time.Duration{250 * time.Millisecond, modelPace * modelInterval} {
		for _, n := range []int{2, 3} {
			all = append(all, modelWay{name: fmt.Sprintf("%d subflows, placed, read each %v", n, d), subflows: n, placed: true, interval: d})
		}
	}
	return all
}

// modelledIn lists the ways that are simulated in a tree.
func modelledIn(k int) []modelWay {
	if k == modelK {
		return append(modelWays(), modelVariants()...)
	}
	return modelWays()
}

func multipathModel() Experiment {
	return Experiment{
		Name:     "multipath-model",
		Title:    "Large flows in fat trees of 4 to 48 ports, by a model of flows",
		Question: "What do large flows get over hashed and over placed subflows, beside what could be had, and in networks larger than a lab?",
		Source:   "QoS dissertation 2018, section 5.5, figures 5.10 to 5.14",
		Varies:   []string{"k", "matrix"},
		Run:      runMultipathModel,
	}
}

// modelled is what one way has given in one tree to one matrix, over all repetitions.
type modelled struct {
	k, perHost, times int
	matrix            int // 0 or 1
	way               modelWay
	shares            []float64 // of large flows: throughput as a part of a link's rate
	large, small      []float64 // how long they took, in seconds
}

// modelRepeats is how many times a tree of k ports is simulated, with other flows each time: a
// small one has few flows.
func modelRepeats(s Scale, k int) int {
	switch {
	case k > 8:
		return 1
	case s == Quick:
		return 3
	}
	return 10
}

// modelPerHost is how many flows a host sends in the mean: in the largest tree fewer, where placing
// alone takes minutes.
func modelPerHost(k int) int {
	if k > 16 {
		return 4
	}
	return matrixFlows / matrixHosts
}

func runMultipathModel(ctx context.Context, env *Env) (*Result, error) {
	sizes, err := chosenOr(env.Only, "k", []int{4, 6, 8, 16, 48}, pick(env.Scale, []int{4, 6}, []int{4, 6, 8, 16}, []int{4, 6, 8, 16, 48}), strconv.Itoa)
	if err != nil {
		return nil, err
	}
	matrices, err := chosen(env.Only, "matrix", []int{0, 1}, func(m int) string { return modelMatrix(m).name })
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("flows", "k", "matrix", "way", "repetition", "from", "to", "large", "start_seconds", "work_seconds", "took_seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	steps := 0
	for _, k := range sizes {
		steps += len(matrices) * len(modelledIn(k))
	}
	env.Steps(steps)
	var all []modelled
	for _, k := range sizes {
		for _, m := range matrices {
			for _, w := range modelledIn(k) {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				env.Step("k = %d, %s, %s", k, modelMatrix(m).name, w.name)
				r := modelled{k: k, perHost: modelPerHost(k), times: modelRepeats(env.Scale, k), matrix: m, way: w}
				begin := time.Now()
				if err := r.simulate(raw); err != nil {
					return nil, err
				}
				env.Logf("large flows have %.1f %% in the mean; computed in %v", 100*mean(r.shares), time.Since(begin).Round(time.Millisecond))
				all = append(all, r)
			}
		}
	}
	return treeModelResult(all), nil
}

func modelMatrix(i int) trafficMatrix { return []trafficMatrix{matrix1, matrix2}[i] }

// carry simulates flows in a tree of k ports, and tells how long each has taken, in seconds.
func (w modelWay) carry(k int, flows []matrixFlow, seed uint64) []float64 {
	tree := newModelTree(k)
	o := flowsim.Options{
		Capacity: make([]float64, tree.links()), Subflows: w.subflows, Threshold: modelThreshold * 8 / modelLink, Coupled: !w.single, Router: newModelRouter(tree, w, flows, seed),
	}
	for i := range o.Capacity {
		o.Capacity[i] = 1
	}
	if w.placed {
		o.Interval = w.reads().Seconds()
	}
	for _, f := range flows {
		o.Flows = append(o.Flows, flowsim.Flow{Start: f.start.Seconds(), Work: f.work.Seconds()})
	}
	ends := flowsim.Run(o)
	for i, f := range o.Flows {
		ends[i] -= f.Start
	}
	return ends
}

// simulate sends the flows of all repetitions. Rows are written of trees
// that are no larger than the dissertation's.
func (r *modelled) simulate(raw *CSV) error {
	for n := range r.times {
		hosts := newModelTree(r.k).hosts()
		flows := modelMatrix(r.matrix).flows(rand.New(rand.NewPCG(uint64(n), uint64(r.matrix))), r.k, r.perHost*hosts, modelPace)
		for i, took := range r.way.carry(r.k, flows, uint64(n)) {
			f := flows[i]
			if f.large {
				r.large, r.shares = append(r.large, took), append(r.shares, f.work.Seconds()/took)
			} else {
				r.small = append(r.small, took)
			}
			if r.k > modelK {
				continue
			}
			if err := raw.Row(r.k, modelMatrix(r.matrix).name, r.way.name, n, f.from, f.to, f.large, f.start, f.work, fmt.Sprintf("%.6f", took)); err != nil {
				return err
			}
		}
	}
	return nil
}

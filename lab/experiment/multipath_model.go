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

// The model has the links and the pace of the live experiment. Intervals of the services have their
// default values, divided by the pace.
const (
	modelLink      = fatTreeRate
	modelPace      = fatTreePace
	modelThreshold = 1_000_000 // bytes that a connection carries for each further subflow
	modelInterval  = 5 * time.Second / modelPace
	modelIdle      = 30 * time.Second / modelPace
	modelPaths     = 4
	// modelK is the number of ports in the dissertation's tree, which claims are about.
	modelK = 6
)

// modelWay is a way in which connections use the network.
type modelWay struct {
	name     string
	subflows int
	placed   bool // the service places further subflows, not a hash
	ideal    bool
	// single means that each subflow has congestion control by itself, as in upstream Linux. The
	// dissertation's kernel coupled those of a connection (LIA).
	single bool
	// interval is that of the service's readings; 0 means the usual one.
	interval time.Duration
	// published holds the dissertation's mean shares of the two matrices, in percent.
	published [2]float64
}

// modelWays returns the ways of the dissertation and others to compare with.
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

// reads returns the interval at which the service reads the links' counters.
func (w modelWay) reads() time.Duration { return cmp.Or(w.interval, modelInterval) }

// modelVariants returns ways that are simulated only in the dissertation's tree: without coupling,
// with readings at shorter intervals, and with readings at the longer default interval, which is
// not divided by the pace.
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

// modelledIn returns the ways that are simulated in a tree.
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

// modelled holds the results of one way in one tree with one matrix, over all repetitions.
type modelled struct {
	k, perHost, times int
	matrix            int // index: 0 or 1
	way               modelWay
	shares            []float64 // of large flows: throughput as a share of a link's rate
	large, small      []float64 // durations in seconds
}

// modelRepeats returns how often a tree of k ports is simulated, with other flows each time,
// because a small tree has few flows.
func modelRepeats(s Scale, k int) int {
	switch {
	case k > 8:
		return 1
	case s == Quick:
		return 3
	}
	return 10
}

// modelPerHost returns the mean number of flows of each host. It is smaller in the largest tree,
// where placing alone takes minutes.
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

// carry simulates flows in a tree of k ports, and returns the duration of each in seconds.
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

// simulate simulates the flows of all repetitions. It writes rows only for trees that are no larger
// than the dissertation's.
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

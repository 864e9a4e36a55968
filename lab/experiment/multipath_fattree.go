package experiment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

// fatTreeRate is the rate of every link in bit/s, which two processors carry in a tree of 45
// switches that forward in user space.
const fatTreeRate = 5e6

// fatTreePace is the factor by which the times of the dissertation are divided.
const fatTreePace = 4

func multipathFatTree() Experiment {
	return Experiment{
		Name:     "multipath-fattree",
		Title:    "Large and small flows in a fat tree: over hashed paths, and with further subflows placed",
		Question: "How much of a link do large flows get when the controller places their further subflows, and what do small ones lose?",
		Source:   "QoS dissertation 2018, section 5.5, figures 5.10 to 5.14",
		Varies:   []string{"matrix", "way"},
		Run:      runMultipathFatTree,
	}
}

// fatTreeWay is a way to carry flows.
type fatTreeWay struct {
	name string
	// subflows bounds the subflows of a large flow, the first one included; 1 means plain TCP.
	subflows int
	placed   bool
	// published holds the mean shares of a link of large flows by matrix, in percent. It is empty
	// if none were published.
	published map[string]float64
}

// fatTreeWays lists the five ways of the dissertation, one with many hashed subflows, and one with
// plain TCP connections that are placed once samples of packets show that they are large.
var fatTreeWays = []fatTreeWay{
	{"TCP hashed", 1, false, map[string]float64{"TM1": 49.4, "TM2": 36.6}},
	{"2 hashed", 2, false, map[string]float64{"TM1": 64.4, "TM2": 52.4}},
	{"2 placed", 2, true, map[string]float64{"TM1": 77.8, "TM2": 63.8}},
	{"3 hashed", 3, false, map[string]float64{"TM1": 72.1, "TM2": 56}},
	{"3 placed", 3, true, map[string]float64{"TM1": 78.5, "TM2": 67.4}},
	{"8 hashed", 8, false, nil},
	{"TCP placed", 1, true, nil},
}

// fatTreeScale holds the sizes of a run.
type fatTreeScale struct {
	k, flows int
	// pace is the factor by which times are divided.
	pace     float64
	ways     []fatTreeWay
	matrices []trafficMatrix
}

func fatTreeScaleOf(env *Env) (s fatTreeScale, err error) {
	s = pick(env.Scale,
		fatTreeScale{k: 4, flows: 48, pace: fatTreePace, ways: fatTreeWays[:3], matrices: []trafficMatrix{matrix1}},
		fatTreeScale{k: 6, flows: matrixFlows, pace: fatTreePace, ways: fatTreeWays, matrices: []trafficMatrix{matrix1, matrix2}},
		fatTreeScale{k: 6, flows: matrixFlows, pace: 1, ways: fatTreeWays, matrices: []trafficMatrix{matrix1, matrix2}})
	if s.matrices, err = chosenOr(env.Only, "matrix", []trafficMatrix{matrix1, matrix2}, s.matrices, func(m trafficMatrix) string { return m.name }); err != nil {
		return s, err
	}
	s.ways, err = chosenOr(env.Only, "way", fatTreeWays, s.ways, func(w fatTreeWay) string { return w.name })
	return s, err
}

// fatTreeRun holds the results of one way with one matrix.
type fatTreeRun struct {
	matrix trafficMatrix
	way    fatTreeWay
	flows  []fatTreeFlow
	// tcp and arp count packets that reached the controller during the run, joins those that were
	// marked SYNs of further subflows, and placed those of them that got a path.
	tcp, arp, joins, placed float64
	cpu                     float64 // processors that were busy
	drops                   testbed.Drops
}

// fatTreeFlow holds the results of a flow.
type fatTreeFlow struct {
	matrixFlow
	took time.Duration // from the beginning of the client's connection to its last byte
	// hangs means that the flow was given up before its last byte.
	hangs bool
}

// hanging returns the number of flows that were given up.
func (r fatTreeRun) hanging() (n int) {
	for _, f := range r.flows {
		if f.hangs {
			n++
		}
	}
	return n
}

// share returns the share of a link's rate that the flow has reached, payload alone.
func (f fatTreeFlow) share() float64 { return f.work.Seconds() / f.took.Seconds() }

func runMultipathFatTree(ctx context.Context, env *Env) (*Result, error) {
	s, err := fatTreeScaleOf(env)
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("flows", "matrix", "way", "from", "to", "start_seconds", "large", "bytes", "took_seconds", "share")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(1 + len(s.matrices)*len(s.ways))
	t := lab.FatTree("fattree", s.k, delayline.Params{})
	for i, h := range t.Hosts {
		t.Hosts[i] = ordinary(h)
	}
	var all []fatTreeRun
	var ceiling float64
	err = env.withLab(ctx, t, func(ctx context.Context, l *lab.Lab) error {
		if err := testbed.ShapeLinks(ctx, l, func(lab.Link) float64 { return fatTreeRate }); err != nil {
			return err
		}
		r := &fatTreeRig{env: env, lab: l, scale: s}
		var err error
		if ceiling, err = r.ceiling(ctx); err != nil {
			return fmt.Errorf("what the machine carries: %w", err)
		}
		for _, m := range s.matrices {
			flows := m.flows(rand.New(rand.NewPCG(5, 10)), s.k, s.flows, s.pace)
			for _, w := range s.ways {
				run, err := r.run(ctx, m, w, flows)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.name, w.name, err)
				}
				if err := saveFatTree(raw, run); err != nil {
					return err
				}
				all = append(all, run)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return fatTreeResult(s, ceiling, all), nil
}

func saveFatTree(raw *CSV, r fatTreeRun) error {
	for _, f := range r.flows {
		if err := raw.Row(r.matrix.name, r.way.name, f.from+1, f.to+1, f.start, f.large, f.bytes(fatTreeRate), f.took, f.share()); err != nil {
			return err
		}
	}
	return nil
}

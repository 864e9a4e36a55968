package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// sample holds the memory of a program at one time.
type sample struct {
	heap     float64 // bytes of live and dead objects
	resident float64 // bytes
}

// sampleEvery is the interval between two samples of a program.
const sampleEvery = 2 * time.Second

// These bound the growth of a program. Its goroutines are compared before the loads and after them,
// once it has come to rest. Its heap is compared between the first and the last third of the quiet
// time, in which nothing is killed: sessions come and go in that time, and the history of ended
// ones fills up to its bound. Idle connections of the other agent, each of which has a goroutine,
// do not count.
const (
	goroutineSlack = 1.25
	goroutineMore  = 40
	heapSlack      = 1.3
	heapMore       = 24 << 20
)

// growth records the goroutines and the memory of the controller and the agents.
type growth struct {
	began   time.Time
	out     io.Writer           // receives a line of CSV for each sample
	samples map[string][]sample // samples of the quiet time
	// before and after hold the goroutines before the loads and after they have ended.
	before, after map[string]float64
	// right counts the connections for SOS that succeeded, and carried those that the controller
	// reports as carried.
	right, carried int
}

// newGrowth returns a growth with the goroutines of the programs before the loads begin.
func newGrowth(ctx context.Context, f *fleet, rec *record) (*growth, error) {
	g := &growth{began: rec.began, samples: map[string][]sample{}, before: map[string]float64{}, after: map[string]float64{}}
	return g, f.goroutines(ctx, g.before)
}

// goroutines counts the goroutines of each program. The count of an agent leaves out those that
// serve idle connections from the other agent.
func (f *fleet) goroutines(ctx context.Context, in map[string]float64) error {
	idle := map[string]float64{}
	err := f.eachProgram(ctx, func(name string, m testbed.Metrics) error {
		in[name], idle[name] = m.Sum("go_goroutines"), m.Sum("sluice_sos_agent_warm_connections")
		return nil
	})
	if err != nil {
		return err
	}
	in["agent x"] -= idle["agent y"]
	in["agent y"] -= idle["agent x"]
	return nil
}

// watch takes samples until stop is closed, and writes them to a file beside the programs' logs as
// well.
func (g *growth) watch(ctx context.Context, f *fleet, rec *record, stop <-chan struct{}) (err error) {
	file, err := os.Create(filepath.Join(f.logs, "growth.csv"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := fmt.Fprintln(file, "second,program,goroutines,files,heap_bytes,resident_bytes"); err != nil {
		return err
	}
	g.out = file
	right, carried := rec.successes(shortLoad, largeLoad, streamLoad), 0
	if carried, err = f.established(ctx); err != nil {
		return err
	}
	for pause(ctx, stop, sampleEvery) {
		if err := g.takeSample(ctx, f); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	g.right = rec.successes(shortLoad, largeLoad, streamLoad) - right
	now, err := f.established(ctx)
	g.carried = now - carried
	return err
}

// established returns the number of sessions that the controller has set up since it was started.
func (f *fleet) established(ctx context.Context) (int, error) {
	m, err := f.Metrics(ctx)
	return int(m.Sum("sluice_sos_sessions_established_total")), err
}

// takeSample samples each program once.
func (g *growth) takeSample(ctx context.Context, f *fleet) error {
	return f.eachProgram(ctx, func(name string, m testbed.Metrics) error {
		s := sample{m.Sum("go_memstats_heap_alloc_bytes"), m.Sum("process_resident_memory_bytes")}
		g.samples[name] = append(g.samples[name], s)
		_, err := fmt.Fprintf(g.out, "%.1f,%s,%.0f,%.0f,%.0f,%.0f\n", time.Since(g.began).Seconds(), name, m.Sum("go_goroutines"),
			m.Sum("process_open_fds"), s.heap, s.resident)
		return err
	})
}

// settle waits until the programs have come to rest, and records their goroutines. It returns no
// error if they do not come to rest, because checks reports that.
func (g *growth) settle(ctx context.Context, f *fleet) error {
	_ = testbed.Poll(ctx, "the programs' rest", func() error {
		restless := ""
		err := f.goroutines(ctx, g.after)
		for name := range g.after {
			if !g.atRest(name) {
				restless = name
			}
		}
		if err == nil && restless != "" {
			err = errors.New(restless)
		}
		return err
	})
	return ctx.Err()
}

// atRest reports whether a program has about as many goroutines as before the loads.
func (g *growth) atRest(name string) bool {
	after, known := g.after[name]
	return known && after <= g.before[name]*goroutineSlack+goroutineMore
}

// watched lists the programs whose growth is checked.
var watched = []string{"controller", "agent x", "agent y"}

// eachProgram calls do with the metrics of each program.
func (f *fleet) eachProgram(ctx context.Context, do func(name string, m testbed.Metrics) error) error {
	for _, name := range watched {
		read := f.Metrics
		if host, ok := strings.CutPrefix(name, "agent "); ok {
			read = func(ctx context.Context) (testbed.Metrics, error) { return f.AgentMetrics(ctx, host) }
		}
		m, err := read(ctx)
		if err == nil {
			err = do(name, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// carriedShare is the smallest share of the connections that agents must carry. It is below 1
// because connections are counted when they end, but sessions when they begin.
const carriedShare = 0.9

// checks returns the checks of the connections that agents have carried, and of the growth of each
// program.
func (g *growth) checks() (all []check) {
	all = append(all, check{
		"agents carry the connections while nothing is killed", float64(g.carried) >= carriedShare*float64(g.right) && g.right > 0,
		fmt.Sprintf("%d sessions for %d connections", g.carried, g.right),
	})
	for _, name := range watched {
		s := g.samples[name]
		c := check{name: fmt.Sprintf("%s: goroutines and memory are flat", name)}
		third := len(s) / 3
		if third == 0 {
			c.found = "too few samples"
			all = append(all, c)
			continue
		}
		first, last := s[:third], s[len(s)-third:]
		// A heap at one time depends on garbage. Its minimum is what stays allocated, and so
		// includes leaks.
		h1, h2 := leastHeap(first), leastHeap(last)
		c.holds = g.atRest(name) && h2 <= h1*heapSlack+heapMore
		c.found = fmt.Sprintf("%.0f goroutines before the loads, %.0f after, heap %.1f to %.1f MB, resident %.0f MB",
			g.before[name], g.after[name], h1/1e6, h2/1e6, last[third-1].resident/1e6)
		all = append(all, c)
	}
	return all
}

// leastHeap returns the smallest heap of the samples.
func leastHeap(s []sample) float64 {
	return slices.MinFunc(s, func(a, b sample) int { return cmp.Compare(a.heap, b.heap) }).heap
}

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

// sample is what a program holds at one moment.
type sample struct {
	heap     float64 // bytes of live and dead objects
	resident float64 // bytes
}

// sampleEvery is how often a program is asked.
const sampleEvery = 2 * time.Second

// How much a program may grow: its goroutines from before the loads to when they have ended
// and it has come to rest, its heap from the first third of the quiet time, in which nothing
// is killed, to the last. Sessions come and go in between, and the history of ended ones fills
// up to its bound. Idle connections of the other agent, of which each has a goroutine, don't count.
const (
	goroutineSlack = 1.25
	goroutineMore  = 40
	heapSlack      = 1.3
	heapMore       = 24 << 20
)

// growth is what the controller and the agents hold.
type growth struct {
	began   time.Time
	out     io.Writer           // a line of CSV for each sample
	samples map[string][]sample // of the quiet time
	// Goroutines before the loads, and when they have ended.
	before, after map[string]float64
	// Connections that SOS was to carry and that were right, and those that the
	// controller says were carried.
	right, carried int
}

// growing takes note of what the programs hold before the loads begin.
func growing(ctx context.Context, f *fleet, rec *record) (*growth, error) {
	g := &growth{began: rec.began, samples: map[string][]sample{}, before: map[string]float64{}, after: map[string]float64{}}
	return g, f.goroutines(ctx, g.before)
}

// goroutines counts what runs in each program, without idle connections of the other agent.
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

// watch samples until stop is closed, also into a file beside the programs' logs.
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
	right, carried := rec.rightOf(shortLoad, largeLoad, streamLoad), 0
	if carried, err = f.established(ctx); err != nil {
		return err
	}
	for rest(ctx, stop, sampleEvery) {
		if err := g.take(ctx, f); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	g.right = rec.rightOf(shortLoad, largeLoad, streamLoad) - right
	now, err := f.established(ctx)
	g.carried = now - carried
	return err
}

// established is how many sessions the controller has set up since it was started.
func (f *fleet) established(ctx context.Context) (int, error) {
	m, err := f.Metrics(ctx)
	return int(m.Sum("sluice_sos_sessions_established_total")), err
}

// take samples each program once.
func (g *growth) take(ctx context.Context, f *fleet) error {
	return f.eachProgram(ctx, func(name string, m testbed.Metrics) error {
		s := sample{m.Sum("go_memstats_heap_alloc_bytes"), m.Sum("process_resident_memory_bytes")}
		g.samples[name] = append(g.samples[name], s)
		_, err := fmt.Fprintf(g.out, "%.1f,%s,%.0f,%.0f,%.0f,%.0f\n", time.Since(g.began).Seconds(), name, m.Sum("go_goroutines"),
			m.Sum("process_open_fds"), s.heap, s.resident)
		return err
	})
}

// settle waits until the programs have come to rest, and notes what runs in them then: what
// is missed, the checks say.
func (g *growth) settle(ctx context.Context, f *fleet) error {
	_ = testbed.Poll(ctx, "the programs' rest", func() error {
		restless := ""
		err := f.goroutines(ctx, g.after)
		for name := range g.after {
			if !g.rests(name) {
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

// rests reports whether no more runs in a program than before the loads.
func (g *growth) rests(name string) bool {
	after, known := g.after[name]
	return known && after <= g.before[name]*goroutineSlack+goroutineMore
}

// watched are the programs of which growth is looked at.
var watched = []string{"controller", "agent x", "agent y"}

// eachProgram calls do with what each program says of itself.
func (f *fleet) eachProgram(ctx context.Context, do func(name string, m testbed.Metrics) error) error {
	for _, name := range watched {
		read := f.Metrics
		if host, is := strings.CutPrefix(name, "agent "); is {
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

// carriedShare is how many of the connections agents must carry at least. They are
// counted when they end, and sessions when they begin.
const carriedShare = 0.9

// checks say whether agents carried what they should, and for each program whether
// it stays as it is.
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
		// A heap at a moment depends on garbage: the least is what stays, and what leaks stays.
		h1, h2 := leastHeap(first), leastHeap(last)
		c.holds = g.rests(name) && h2 <= h1*heapSlack+heapMore
		c.found = fmt.Sprintf("%.0f goroutines before the loads, %.0f after, heap %.1f to %.1f MB, resident %.0f MB",
			g.before[name], g.after[name], h1/1e6, h2/1e6, last[third-1].resident/1e6)
		all = append(all, c)
	}
	return all
}

// leastHeap is the least of the samples' heaps.
func leastHeap(s []sample) float64 {
	return slices.MinFunc(s, func(a, b sample) int { return cmp.Compare(a.heap, b.heap) }).heap
}

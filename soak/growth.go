package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/experiment/stage"
)

// sample is what a program holds at one moment.
type sample struct {
	goroutines float64
	heap       float64 // bytes of live and dead objects
	resident   float64 // bytes
}

// sampleEvery is how often a program is asked.
const sampleEvery = 2 * time.Second

// How much a program may grow from the first third of the quiet time, in which
// nothing is killed, to the last. Sessions come and go in between, and the history
// of ended ones fills up to its bound.
const (
	goroutineSlack = 1.25
	goroutineMore  = 40
	heapSlack      = 1.3
	heapMore       = 24 << 20
)

// growth samples the controller and the agents in the quiet time.
type growth struct {
	began   time.Time
	out     io.Writer // a line of CSV for each sample
	samples map[string][]sample
	// Connections that SOS was to carry and that were right, and those that the
	// controller says were carried.
	right, carried int
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
	g.began, g.out = rec.began, file
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

func (g *growth) take(ctx context.Context, f *fleet) error {
	for _, p := range []struct {
		name string
		read func() (stage.Metrics, error)
	}{
		{"controller", func() (stage.Metrics, error) { return f.Metrics(ctx) }},
		{"agent x", func() (stage.Metrics, error) { return f.AgentMetrics(ctx, "x") }},
		{"agent y", func() (stage.Metrics, error) { return f.AgentMetrics(ctx, "y") }},
	} {
		m, err := p.read()
		if err != nil {
			return err
		}
		s := sample{m.Sum("go_goroutines"), m.Sum("go_memstats_heap_alloc_bytes"), m.Sum("process_resident_memory_bytes")}
		g.samples[p.name] = append(g.samples[p.name], s)
		_, err = fmt.Fprintf(g.out, "%.1f,%s,%.0f,%.0f,%.0f,%.0f\n", time.Since(g.began).Seconds(), p.name, s.goroutines,
			m.Sum("process_open_fds"), s.heap, s.resident)
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
	for _, name := range []string{"controller", "agent x", "agent y"} {
		s := g.samples[name]
		c := check{name: fmt.Sprintf("%s: goroutines and memory are flat", name)}
		third := len(s) / 3
		if third == 0 {
			c.found = "too few samples"
			all = append(all, c)
			continue
		}
		first, last := s[:third], s[len(s)-third:]
		// Goroutines at a moment depend on the sessions at it, and heaps on garbage: the
		// least of each is what stays, and what leaks stays.
		g1, g2 := least(first, sample.running), least(last, sample.running)
		h1, h2 := least(first, sample.live), least(last, sample.live)
		c.holds = g2 <= g1*goroutineSlack+goroutineMore && h2 <= h1*heapSlack+heapMore
		c.found = fmt.Sprintf("%.0f to %.0f goroutines, heap %.1f to %.1f MB, resident %.0f MB", g1, g2, h1/1e6, h2/1e6, last[third-1].resident/1e6)
		all = append(all, c)
	}
	return all
}

func (s sample) running() float64 { return s.goroutines }
func (s sample) live() float64    { return s.heap }

// least is the least of what is read of the samples.
func least(s []sample, read func(sample) float64) float64 {
	m := read(s[0])
	for _, v := range s[1:] {
		m = min(m, read(v))
	}
	return m
}

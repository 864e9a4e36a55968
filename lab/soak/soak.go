package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
)

// Options holds the options of a soak.
type Options struct {
	Time   time.Duration // how long the loads run: 30 s to a day
	Seed   uint64        // determines the order of the kills
	Kill   []string      // kinds of programs that are killed, of Kinds; none means all
	Out    string        // folder for the programs' logs; made if missing
	Binary string        // path of sluice
	Lab    string        // path of sluice-lab
	Log    io.Writer     // receives the events and the result
}

// MinTime and MaxTime bound a soak's time.
const (
	MinTime = 30 * time.Second
	MaxTime = 24 * time.Hour
)

// killShare is the share of the time in which programs are killed. The rest shows whether the
// memory of the programs grows when none is killed.
const killShare = 0.6

// Run runs a soak. It returns ErrFaults if a failure is not explained by a kill, or a check at the
// end failed. If ctx ends it takes the lab down and returns the context's error. It needs root.
func Run(ctx context.Context, o Options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("a soak builds network namespaces and needs root")
	}
	if o.Time < MinTime || o.Time > MaxTime {
		return fmt.Errorf("soak for %v: not between %v and %v", o.Time, MinTime, MaxTime)
	}
	for _, kind := range o.Kill {
		if !slices.Contains(Kinds(), kind) {
			return fmt.Errorf("kill a %q: not one of %q", kind, Kinds())
		}
	}
	logs, err := filepath.Abs(o.Out)
	if err == nil {
		err = os.MkdirAll(logs, 0o755)
	}
	if err != nil {
		return fmt.Errorf("make the output folder: %w", err)
	}
	rec := newRecord(o.Log)
	rec.logf("seed %d, for %v; logs in %s", o.Seed, o.Time, o.Out)
	if err := lab.Sweep(ctx, lab.Options{}); err != nil {
		rec.logf("labs of ended programs: %v", err)
	}
	l, err := lab.Up(ctx, topology(), lab.Options{Ephemeral: true})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, l.Down(ctx))
	}()
	f, err := deploy(ctx, l, o.Binary, logs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	return soak(ctx, f, rec, o)
}

// soak runs loads and harm, and then checks the network.
func soak(ctx context.Context, f *fleet, rec *record, o Options) error {
	w, err := f.serveFiles(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	g, err := newGrowth(ctx, f, rec)
	if err != nil {
		return err
	}
	h := &harm{fleet: f, program: o.Lab, rec: rec, seed: o.Seed, kinds: o.Kill}
	group, within := errgroup.WithContext(ctx)
	over, killsOver := make(chan struct{}), make(chan struct{})
	for _, load := range f.loads(rec, w) {
		group.Go(func() error { return load(within, over) })
	}
	for _, harm := range h.all() {
		group.Go(func() error { return harm(within, over) })
	}
	killed := make(chan struct{})
	group.Go(func() error {
		defer close(killed)
		return h.killPrograms(within, killsOver)
	})
	rec.logf("the loads run")
	group.Go(func() error {
		defer close(over)
		begin := time.Now()
		_ = tasks.Sleep(within, time.Duration(killShare*float64(o.Time))) // If it ends early, the error that ended it is reported below.
		close(killsOver)
		<-killed
		if within.Err() != nil {
			return context.Cause(within)
		}
		rec.logf("nothing is killed any more")
		quiet, cancel := context.WithDeadline(within, begin.Add(max(o.Time, time.Since(begin)+MinTime/2)))
		defer cancel()
		return g.watch(within, f, rec, quiet.Done())
	})
	if err := group.Wait(); err != nil {
		return err
	}
	rec.logf("the loads have ended")
	checks := f.verify(ctx)
	if err := g.settle(ctx, f); err != nil {
		return err
	}
	return rec.report(append(checks, g.checks()...))
}

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

// Options says how long to soak, and how.
type Options struct {
	Time   time.Duration // of the loads, 30 s to a day
	Seed   uint64        // decides what is killed in which order
	Kill   []string      // kinds of programs that are killed, of Kinds; none: all
	Out    string        // folder of the programs' logs; made if missing
	Binary string        // the program sluice
	Lab    string        // the program sluice-lab
	Log    io.Writer     // what happens, and the result
}

// Limits of a soak's time.
const (
	MinTime = 30 * time.Second
	MaxTime = 24 * time.Hour
)

// killShare is the share of the time in which programs are killed. The rest shows
// whether those that then go on stay as they are.
const killShare = 0.6

// Run soaks. It returns ErrFaults if something failed that no kill explains, or
// did not hold at the end. When ctx ends it takes the lab down and returns the
// context's error. It needs root.
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
	rec.say("seed %d, for %v; logs in %s", o.Seed, o.Time, o.Out)
	if err := lab.Sweep(ctx, lab.Options{}); err != nil {
		rec.say("labs of ended programs: %v", err)
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

// soak runs loads and harm, and then looks at what is left.
func soak(ctx context.Context, f *fleet, rec *record, o Options) error {
	w, err := f.serveFiles(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	g, err := growing(ctx, f, rec)
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
	rec.say("the loads run")
	group.Go(func() error {
		defer close(over)
		begin := time.Now()
		_ = tasks.Sleep(within, time.Duration(killShare*float64(o.Time))) // whoever ends it early says why
		close(killsOver)
		<-killed
		if within.Err() != nil {
			return context.Cause(within)
		}
		rec.say("nothing is killed any more")
		quiet, cancel := context.WithDeadline(within, begin.Add(max(o.Time, time.Since(begin)+MinTime/2)))
		defer cancel()
		return g.watch(within, f, rec, quiet.Done())
	})
	if err := group.Wait(); err != nil {
		return err
	}
	rec.say("the loads have ended")
	checks := f.verify(ctx)
	if err := g.settle(ctx, f); err != nil {
		return err
	}
	return rec.conclude(append(checks, g.checks()...))
}

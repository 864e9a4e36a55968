package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/subflows"
)

const (
	cutPort = 7300
	cutRate = 20e6
	// cutStall bounds the longest stall of a connection after a cut, as the median over all cuts.
	cutStall = 250 * time.Millisecond
	// cutWatch is how long a connection is watched after a cut.
	cutWatch = 4 * time.Second
)

func multipathCut() Experiment {
	return Experiment{
		Name:     "multipath-cut",
		Title:    "A connection with further subflows loses a link or a switch of its paths",
		Question: "How long does a connection stall when one of its paths fails, and how soon does the subflow have another path?",
		Varies:   []string{"what"},
		Run:      runMultipathCut,
	}
}

// cutKinds lists what fails.
var cutKinds = []string{"link", "switch"}

// cutOutcome holds the effects of one failure on a connection.
type cutOutcome struct {
	what         string
	stall, moved time.Duration
	ended        bool // the subflow ended instead of moving
}

// cutRig is the network of multipath-gain with three paths, and its controller.
type cutRig struct {
	env *Env
	lab *lab.Lab
	net *testbed.Network
}

func runMultipathCut(ctx context.Context, env *Env) (*Result, error) {
	kinds, err := chosen(env.Only, "what", cutKinds, func(s string) string { return s })
	if err != nil {
		return nil, err
	}
	times := pick(env.Scale, 3, 15, 50)
	raw, err := env.CSV("cuts", "what", "stall_seconds", "moved_after_seconds", "ended")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(kinds))
	var all []cutOutcome
	err = env.withLab(ctx, gainLab(gainCase{ways: 3, rate: cutRate}), func(ctx context.Context, l *lab.Lab) (err error) {
		r := &cutRig{env: env, lab: l}
		if r.net, err = testbed.DeployNetwork(ctx, testbed.NetworkOptions{
			Lab: l, Binary: env.Binary, LogDir: env.Dir, Interval: 5 * time.Second, Rate: func(lab.Link) float64 { return cutRate },
			Settings: "  forwarding: {mode: proactive}\n", Services: "qos: {subflows: {enabled: true}}\n",
		}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.net.Close()) }()
		for _, name := range []string{"a", "b"} {
			d, err := testbed.StartHostAgent(ctx, l.Host(name), env.Binary, env.Dir)
			if err != nil {
				return err
			}
			defer d.Stop()
		}
		for _, what := range kinds {
			env.Step("a %s dies under a connection with three further subflows, %d times", what, times)
			for range times {
				o, err := r.cut(ctx, what)
				if err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				all = append(all, o)
				if err := raw.Row(o.what, o.stall, o.moved, o.ended); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return cutResult(kinds, all), nil
}

// cut opens a connection, waits until its further subflows carry data, makes the path of one fail,
// and restores it.
func (r *cutRig) cut(ctx context.Context, what string) (o cutOutcome, err error) {
	o.what = what
	if err := r.awaitRecovery(ctx); err != nil {
		return o, err
	}
	f, err := r.begin(ctx)
	if err != nil {
		return o, err
	}
	defer f.close()
	victim, err := r.victim(ctx, f)
	if err != nil {
		return o, err
	}
	way := fmt.Sprintf("w%d", uint64(victim.Path[1].Switch)-2) // s1 and s2 come before the switches of the paths
	link, err := linkBetween(r.lab, "s1", way)
	if err != nil {
		return o, err
	}
	f.resetStall()
	died := time.Now()
	if what == "link" {
		err = r.lab.SetLink(ctx, link, false)
	} else {
		err = r.lab.Switch(way).Kill(ctx)
	}
	if err != nil {
		return o, err
	}
	if o.moved, o.ended, err = r.moved(ctx, victim, died); err != nil {
		return o, err
	}
	if err := tasks.Sleep(ctx, time.Until(died.Add(cutWatch))); err != nil {
		return o, err
	}
	o.stall = f.stall()
	if what == "link" {
		return o, r.lab.SetLink(ctx, link, true)
	}
	return o, r.lab.Switch(way).Start(ctx)
}

// awaitRecovery waits until all links are known and both hosts reach each other.
func (r *cutRig) awaitRecovery(ctx context.Context) error {
	if err := testbed.Poll(ctx, "all links", func() error {
		var found []struct{}
		err := r.net.Get(ctx, "/api/v1/network/links", &found)
		if err == nil && len(found) < 12 {
			err = fmt.Errorf("%d of 12 are known", len(found))
		}
		return err
	}); err != nil {
		return err
	}
	a, b := r.lab.Host("a"), r.lab.Host("b")
	return awaitReachable(ctx, a, a.Addr(), b.Addr())
}

// subflows returns the connection's subflows that have been placed.
func (r *cutRig) subflows(ctx context.Context, f *cutFlow) (own []subflows.Subflow, err error) {
	var all []subflows.Subflow
	if err := r.net.Get(ctx, "/api/v1/qos/subflows", &all); err != nil {
		return nil, err
	}
	for _, s := range all {
		if len(s.Path) == 3 && s.Since.After(f.began) {
			own = append(own, s)
		}
	}
	return own, nil
}

// victim waits until three further subflows have been placed, and returns one of them.
func (r *cutRig) victim(ctx context.Context, f *cutFlow) (victim subflows.Subflow, err error) {
	err = testbed.Poll(ctx, "three further subflows", func() error {
		own, err := r.subflows(ctx, f)
		if err == nil && len(own) < 3 {
			err = fmt.Errorf("there are %d", len(own))
		}
		if err == nil {
			victim = own[0]
		}
		return err
	})
	if err != nil {
		return victim, err
	}
	return victim, tasks.Sleep(ctx, 2*time.Second) // until they have become fast
}

// moved waits until a subflow has another path or no longer exists. It returns the time since the given
// one, and reports whether the subflow has ended.
func (r *cutRig) moved(ctx context.Context, victim subflows.Subflow, since time.Time) (after time.Duration, ended bool, err error) {
	err = testbed.Poll(ctx, "the subflow to go another way", func() error {
		var all []subflows.Subflow
		if err := r.net.Get(ctx, "/api/v1/qos/subflows", &all); err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(s subflows.Subflow) bool { return s.ID == victim.ID })
		if i >= 0 && all[i].Path[1].Switch == victim.Path[1].Switch {
			return errors.New("it goes by the same switch")
		}
		after, ended = time.Since(since), i < 0
		return nil
	})
	return after, ended, err
}

func cutResult(kinds []string, all []cutOutcome) *Result {
	r := &Result{Network: fmt.Sprintf("two switches with a host each, and three ways of one more switch between them, %.0f Mbit/s and 4 ms each", cutRate/1e6)}
	t := Table{Title: "After a death, in ms", Columns: []string{"what", "times", "stall p50", "stall p90", "stall most", meanColumn, "ended", "another way p50", "another way most"}}
	for _, what := range kinds {
		var stalls, moves []float64
		ended := 0
		for _, o := range all {
			if o.what == what {
				stalls = append(stalls, o.stall.Seconds()*1000)
				if o.ended {
					ended++
				} else {
					moves = append(moves, o.moved.Seconds()*1000)
				}
			}
		}
		t.Add(what, len(stalls), ms2(median(stalls)), ms2(quantile(stalls, 0.9)), ms2(quantile(stalls, 1)), meanText(stalls, 1, 1), ended, ms2(median(moves)), ms2(quantile(moves, 1)))
		r.Claim(median(stalls) <= cutStall.Seconds()*1000, fmt.Sprintf("a %s dies: the connection stalls for %v at most, in the middle of all", what, cutStall), "%.0f ms", median(stalls))
	}
	r.Tables = append(r.Tables, t)
	r.Note("A stall is the longest time without data at the receiver in the %v after. Beside the dead way the connection has at least one other; its first subflow goes by hash, and may be on the dead one, too.", cutWatch)
	r.Note("All settings are the default ones but forwarding.mode: proactive and qos.subflows.enabled.")
	return r
}

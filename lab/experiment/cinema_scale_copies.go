package experiment

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

const (
	// copiesHeldTo is the number of copies a second that a sort switch must make. A sort switch is
	// the switch before an egress gateway, which copies channels to the gateway's viewers by
	// OpenFlow groups of copyGroup buckets. chainedViewers is a number of viewers of one channel
	// that needs several such groups.
	copiesHeldTo   = 300_000
	copyGroup      = 700
	chainedViewers = 2000
	// chainedRate is the number of datagrams a second that are sent to these viewers.
	chainedRate = 10
	// movesWanted is the number of changes of channel, bystanders the number of viewers who do not
	// change, and bystanderRate the number of datagrams a second.
	movesWanted, bystanders, bystanderRate = 100, 200, 1000
	// moveEvery is the time from the end of a change to the next.
	moveEvery = 20 * time.Millisecond
	// tries is how often a rate is tried before it counts as too high, because other programs use
	// this machine too.
	tries = 2
)

// scaleCopies finds the highest rate without loss for several numbers of buckets.
func scaleCopies(ctx context.Context, env *Env, r *Result) error {
	raw, err := env.CSV("copies", "buckets", "copies_per_second_wanted", "copies", "lost", "doubled", "late", "seconds", "switch_cpu_seconds", "drops_of_sockets", "drops_of_backlog")
	if err != nil {
		return err
	}
	defer raw.Close()
	buckets, err := chosen(env.Only, "buckets", []int{10, 100, copyGroup, 1400, chainedViewers, tree.MaxCopies}, strconv.Itoa)
	if err != nil {
		return err
	}
	table := Table{
		Title:   "Copies of one channel at one switch",
		Columns: []string{"buckets", "groups", "highest rate without loss, copies/s", "switch CPU per copy, µs", "there it lost or was late, copies/s", "lost there", "late", "viewers who got nothing", "dropped by this machine's sockets, backlog"},
	}
	best := 0.0
	err = env.withCopies(ctx, "copies", 1, func(ctx context.Context, rig *copyRig) error {
		for _, n := range buckets {
			env.Step("%d buckets", n)
			if err := rig.declare(ctx, 1, slices.Max(copyRates(env.Scale))/float64(n)); err != nil {
				return err
			}
			if err := rig.viewers(ctx, n, 1); err != nil {
				return err
			}
			if n == chainedViewers {
				if err := rig.chained(ctx, env, r); err != nil {
					return err
				}
			}
			good, bad, err := rig.highest(ctx, env, n, raw)
			if err != nil {
				return err
			}
			if n <= copyGroup {
				best = max(best, good.rate())
			}
			if n > copyGroup {
				r.Claim(good.without+bad.without == 0, fmt.Sprintf("%d viewers of one channel: all get it", n), "%d get nothing", max(good.without, bad.without))
			}
			table.Add(n, (n+copyGroup-1)/copyGroup, fmt.Sprintf("%.0f", good.rate()), fmt.Sprintf("%.2f", good.perCopy()), none(bad.wanted), bad.lost, bad.late, bad.without,
				fmt.Sprintf("%d, %d", bad.drops.Sockets, bad.drops.Backlog))
			env.Logf("%.0f copies/s, %.2f µs each", good.rate(), good.perCopy())
			if n == tree.MaxCopies {
				err := rig.gateway.NewViewer().Watch(ctx, treeChannel(1))
				r.Claim(err != nil && strings.Contains(err.Error(), "behind one switch"), "one viewer more than the switch would make copies for is refused, with the reason", "%v", err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, table)
	if buckets[0] <= copyGroup {
		r.Claim(best >= copiesHeldTo, fmt.Sprintf("one switch makes %d copies a second without loss, in a group of at most %d", copiesHeldTo, copyGroup), "%.0f", best)
	}
	r.Note("Open vSwitch begins no further group of a rule when the copies so far are more than 64 kB of its datapath's actions, which are 24 bytes for each viewer at the same host, and 88 for each at another one. The controller refuses what would be beyond.")
	r.Note("Datagrams of %d bytes. A rate counts if in one of %d tries nothing is lost, and all has come when the sender ends; CPU is that of the switch's process, which delivers into the receivers' kernel as well. The receivers are counted and dropped in the kernel, by a program at the gateway's interface. Channels are declared with the highest rate that is tried, of which cinema.link_share has to leave them 0.9 of a port.", scalePayload, tries)
	return nil
}

// none returns the text of a rate that may not exist.
func none(rate float64) string {
	if rate == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", rate)
}

// copyRates returns the rates to try, in copies a second.
func copyRates(s Scale) []float64 {
	return pick(s, []float64{10e3, 30e3, 100e3, 200e3, 300e3, 400e3},
		[]float64{3e3, 10e3, 30e3, 60e3, 100e3, 150e3, 200e3, 250e3, 300e3, 350e3, 400e3, 500e3, 600e3},
		[]float64{3e3, 10e3, 20e3, 30e3, 45e3, 60e3, 80e3, 100e3, 125e3, 150e3, 175e3, 200e3, 225e3, 250e3, 275e3, 300e3, 325e3, 350e3, 400e3, 450e3, 500e3, 600e3})
}

// highest returns the results of the highest rate without loss, and of the next higher rate.
func (rig *copyRig) highest(ctx context.Context, env *Env, n int, raw *CSV) (good, bad copyRun, err error) {
	lasts := pick(env.Scale, 2*time.Second, 4*time.Second, 10*time.Second)
	for _, rate := range copyRates(env.Scale) {
		var c copyRun
		for range tries {
			if c, err = rig.send(ctx, rate/float64(n), lasts, nil); err != nil {
				return good, bad, err
			}
			c.wanted = rate
			if err := raw.Row(n, rate, c.copies, c.lost, c.doubled, c.late, c.took, c.cpu, c.drops.Sockets, c.drops.Backlog); err != nil {
				return good, bad, err
			}
			if c.clean() {
				break
			}
		}
		// A sender that did not reach the rate has found its own limit, not the switch's.
		if !c.clean() || c.rate() < 0.8*rate {
			return good, c, nil
		}
		good = c
	}
	return good, bad, nil
}

// chained lets viewers of one channel receive it through several groups.
func (rig *copyRig) chained(ctx context.Context, env *Env, r *Result) error {
	c, err := rig.send(ctx, chainedRate, pick(env.Scale, 3*time.Second, 10*time.Second, 30*time.Second), nil)
	if err != nil {
		return err
	}
	r.Claim(c.clean() && c.copies == c.sent*uint64(len(rig.all)), fmt.Sprintf("%d viewers of one channel: each gets each of its datagrams once, at %d a second", len(rig.all), chainedRate),
		"%d datagrams, %d copies lost, %d doubled, %d late", c.sent, c.lost, c.doubled, c.late)
	return nil
}

// scaleMoves lets viewers change channel among others who do not.
func scaleMoves(ctx context.Context, env *Env, r *Result) error {
	raw, err := env.CSV("moves", "number", "seconds")
	if err != nil {
		return err
	}
	defer raw.Close()
	return env.withCopies(ctx, "moves", 2, func(ctx context.Context, rig *copyRig) error {
		env.Step("%d bystanders", bystanders)
		if err := rig.declare(ctx, 2, bystanderRate); err != nil {
			return err
		}
		if err := rig.viewers(ctx, bystanders, 2); err != nil {
			return err
		}
		rate, err := rig.still(ctx, env)
		if err != nil {
			return err
		}
		env.Step("%d moves at %.0f datagrams/s", movesWanted, rate)
		var took []float64
		c, err := rig.send(ctx, rate, 0, func(ctx context.Context) (err error) {
			took, err = rig.moves(ctx, raw)
			return err
		})
		if err != nil {
			return err
		}
		bystandersResult(r, rate, took, c)
		return nil
	})
}

// moves changes a viewer between two channels, and returns the time of each change in ms.
func (rig *copyRig) moves(ctx context.Context, raw *CSV) (took []float64, err error) {
	v := rig.gateway.NewViewer()
	if err := v.Watch(ctx, treeChannel(1)); err != nil {
		return nil, err
	}
	for i := range movesWanted {
		began := time.Now()
		if err := move(ctx, v, treeChannel(i%2+1), treeChannel((i+1)%2+1)); err != nil {
			return nil, err
		}
		d := time.Since(began)
		took = append(took, inMS(d))
		if err := raw.Row(i+1, d); err != nil {
			return nil, err
		}
		if err := tasks.Sleep(ctx, moveEvery); err != nil {
			return nil, err
		}
	}
	return took, nil
}

func bystandersResult(r *Result, rate float64, took []float64, c copyRun) {
	table := Table{
		Title:   "Changes of channel among bystanders: the new bucket beside the old one, then without it",
		Columns: []string{"changes", "bystanders", "datagrams/s to each", "copies for them", "lost", "doubled", "a change: median ms", "p95"},
	}
	table.Add(len(took), bystanders, rate, c.copies, c.lost, c.doubled, ms1(median(took)), ms1(quantile(took, 0.95)))
	r.Tables = append(r.Tables, table)
	r.Claim(c.lost+c.doubled == 0 && c.copies > 0, fmt.Sprintf("%d changes among %d bystanders at %.0f datagrams a second: none lost or doubled for them", len(took), bystanders, rate),
		"%d lost, %d doubled of %d", c.lost, c.doubled, c.copies)
	r.Claim(rate >= bystanderRate, fmt.Sprintf("this machine receives %d datagrams a second for %d viewers without loss while nobody changes", bystanderRate, bystanders), "%.0f", rate)
}

// move changes a viewer's channel as egress gateways do.
func move(ctx context.Context, v *testbed.RawViewer, from, to string) error {
	if err := v.Watch(ctx, to, from); err != nil {
		return err
	}
	return v.Watch(ctx, to)
}

// still returns the highest rate at which bystanders lose nothing while no viewer changes its
// channel.
func (rig *copyRig) still(ctx context.Context, env *Env) (float64, error) {
	lasts := pick(env.Scale, 4*time.Second, 10*time.Second, 10*time.Second)
	for _, rate := range []float64{bystanderRate, 750, 500, 250, 100, 50} {
		for range tries {
			c, err := rig.send(ctx, rate, lasts, nil)
			if err != nil {
				return 0, err
			}
			env.Logf("nothing changes: %.0f datagrams/s: %d of %d lost", rate, c.lost, c.copies)
			if c.clean() && c.rate() > 0.9*rate*bystanders {
				return rate, nil
			}
		}
	}
	return 0, fmt.Errorf("this machine loses packets for %d viewers at every rate", bystanders)
}

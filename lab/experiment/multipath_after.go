package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/subflows"
)

const (
	// afterRate is the rate of each of the two ways in bit/s.
	afterRate = 20e6
	// afterGain is how many times the rate of plain TCP each transfer must have. With all subflows on
	// one way it has no more than plain TCP.
	afterGain = 1.3
)

func multipathAfter() Experiment {
	return Experiment{
		Name:     "multipath-after",
		Title:    "Large transfers right after plain TCP, whose load the controller still sees",
		Question: "Does a transfer with further subflows use both ways at once, whatever was there a moment ago?",
		Source:   "QoS dissertation 2018, chapter 5",
		Run:      runMultipathAfter,
	}
}

// afterRound is a transfer by plain TCP, and the transfer with further subflows that follows it.
type afterRound struct {
	plain, many float64 // in bit/s
	// ways lists the ways of the further subflows when they were first seen, and at the end.
	first, last []string
	moves       int
}

func runMultipathAfter(ctx context.Context, env *Env) (*Result, error) {
	rounds := pick(env.Scale, 4, 7, 14)
	during := pick(env.Scale, 7*time.Second, 7*time.Second, 14*time.Second)
	raw, err := env.CSV("rounds", "round", "plain_bits_per_second", "many_bits_per_second", "first", "last", "moves")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(rounds)
	var all []afterRound
	c := gainCase{ways: 2, rate: afterRate}
	err = env.withLab(ctx, gainLab(c), func(ctx context.Context, l *lab.Lab) (err error) {
		n, err := deployGain(ctx, env, l, c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.Close()) }()
		stop, err := startHostAgents(ctx, env, l)
		if err != nil {
			return err
		}
		defer stop()
		for i := range rounds {
			env.Step("plain TCP, and at once MPTCP, %v each", during)
			round, err := measureAfter(ctx, n, l, during)
			if err != nil {
				return err
			}
			env.Logf("plain %.2f, with further subflows %.2f Mbit/s; they go by %s, at the end by %s", round.plain/1e6, round.many/1e6, strings.Join(round.first, " "), strings.Join(round.last, " "))
			if err := raw.Row(i+1, round.plain, round.many, strings.Join(round.first, " "), strings.Join(round.last, " "), round.moves); err != nil {
				return err
			}
			all = append(all, round)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return afterResult(all), nil
}

// measureAfter measures plain TCP, and right afterwards MPTCP, while it observes the subflows.
func measureAfter(ctx context.Context, n *testbed.Network, l *lab.Lab, during time.Duration) (round afterRound, err error) {
	transfer := func(multipath bool) (float64, error) {
		t := testbed.Transfer{Client: l.Host("a"), Server: l.Host("b"), To: l.Host("b").Addr().String(), Port: gainIperfPort, Time: during}
		if multipath {
			t.Client, t.Server = testbed.Multipath(l.Host("a")), testbed.Multipath(l.Host("b"))
		}
		g, err := t.Run(ctx)
		return g.BitsPerSecond, err
	}
	if round.plain, err = transfer(false); err != nil {
		return round, fmt.Errorf("plain TCP: %w", err)
	}
	began := time.Now()
	both, observing := errgroup.WithContext(ctx)
	observing, stop := context.WithCancel(observing)
	both.Go(func() error { return round.observe(observing, n, began) })
	round.many, err = transfer(true)
	stop()
	if err = errors.Join(err, both.Wait()); err != nil {
		return round, fmt.Errorf("MPTCP: %w", err)
	}
	return round, nil
}

// observe records the ways of the subflows that have begun since a time, until ctx ends.
func (r *afterRound) observe(ctx context.Context, n *testbed.Network, began time.Time) error {
	var order []string
	first, last, moves := map[string]string{}, map[string]string{}, map[string]int{}
	for tasks.Sleep(ctx, 50*time.Millisecond) == nil {
		var all []subflows.Subflow
		if err := n.Get(ctx, "/api/v1/qos/subflows", &all); err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		for _, s := range all {
			if len(s.Path) != 3 || s.Since.Before(began) {
				continue
			}
			way := fmt.Sprintf("w%d", uint64(s.Path[1].Switch)-2) // s1 and s2 come before the switches of the ways
			if !slices.Contains(order, s.ID) {
				order = append(order, s.ID)
				first[s.ID] = way
			}
			last[s.ID], moves[s.ID] = way, s.Moves
		}
	}
	for _, id := range order {
		r.first, r.last, r.moves = append(r.first, first[id]), append(r.last, last[id]), r.moves+moves[id]
	}
	return nil
}

func afterResult(all []afterRound) *Result {
	r := &Result{Network: fmt.Sprintf("two switches with a host each, and two ways of one more switch between them, %.0f Mbit/s and 4 ms each; counters are read every 5 s", afterRate/1e6)}
	t := Table{Title: "Transfers one right after the other", Columns: []string{"round", "plain TCP Mbit/s", "with further subflows Mbit/s", "times", "subflows placed by", "at the end by", "moves"}}
	var gains []float64
	for i, x := range all {
		gains = append(gains, x.many/x.plain)
		t.Add(i+1, ms2(x.plain/1e6), ms2(x.many/1e6), ms2(x.many/x.plain), strings.Join(x.first, " "), strings.Join(x.last, " "), x.moves)
	}
	r.Tables = append(r.Tables, t)
	slow := 0
	for _, g := range gains {
		if g < afterGain {
			slow++
		}
	}
	r.Claim(slow == 0, fmt.Sprintf("every transfer is at least %.1f times as fast as the plain one before it", afterGain), "%d of %d are slower; mean %s times", slow, len(gains), meanText(gains, 1, 2))
	r.Note("All settings are the default ones but forwarding.mode: proactive and qos.subflows.enabled. The first subflow of a connection, and plain TCP, go by hash. Their ways are not listed.")
	return r
}

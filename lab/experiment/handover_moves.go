package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
)

const (
	movesEdges = 4
	// movesDevices is the number of devices that move. They make 1,000 moves in four minutes. Two
	// cores carry some 4,000 of their packets a second in each direction, if nothing else runs.
	movesDevices = 16
	// movesRate is the rate of each device's packets, so that all together send 2,000 a second in
	// each direction.
	movesRate = 2000 / movesDevices
	// killedDevices is the number of devices that move while the controller is killed.
	killedDevices = 2
	// movesLeg is about how many moves are made during one pair of streams, because a stream can
	// record only a bounded number of packets.
	movesLeg = 25
	// Pauses between moves are between shortestPause and longestPause, and their logarithms are
	// distributed uniformly. So many are short: a device that returns soon meets what its last
	// visit has left in the switches.
	shortestPause, longestPause = 100 * time.Millisecond, 15 * time.Second
	// killWithin is the longest time from the beginning of a move until the controller is killed.
	killWithin = 40 * time.Millisecond
	// movesSettle is how long the old branch may still carry packets.
	movesSettle = time.Second
)

func handoverMoves() Experiment {
	return Experiment{
		Name:     "handover-moves",
		Title:    "Seamless moves at random times, packets counted both ways",
		Question: "Is a seamless move without loss both ways, however soon the device comes back to a place, on a busy machine, and when the controller is killed in it?",
		Varies:   []string{"case"},
		Run:      runHandoverMoves,
	}
}

// movesCase is one way to disturb the moves.
type movesCase struct {
	name    string
	devices int  // number of devices that move at the same time
	rate    int  // packets a second of each device in each direction
	moves   int  // moves of all devices together
	loaded  bool // another program uses one core
	killed  bool // the controller is killed while all devices move
	// single means a device whose one radio leaves a place before it is at the next.
	single bool
}

func movesCases(s Scale) []movesCase {
	return []movesCase{
		{name: "alone", devices: movesDevices, rate: movesRate, moves: pick(s, 60, 1000, 3000)},
		{name: "loaded", devices: movesDevices, rate: movesRate, moves: pick(s, 30, 1000, 3000), loaded: true},
		{name: "killed", devices: killedDevices, rate: 2000, moves: killedDevices * pick(s, 3, 50, 200), killed: true},
		{name: "one-radio", devices: 1, rate: 2000, moves: pick(s, 4, 50, 200), single: true},
	}
}

// movesSamples holds the effects of a case's moves.
type movesSamples struct {
	moves    int
	up, down movesDirection
	lease    []float64 // ms from the decision to the network's answer
	repeated int       // moves that had to be requested again after a kill
	drops    testbed.Drops
	still    int // packets lost by the device that does not move
}

// movesDirection holds the effects in one direction.
type movesDirection struct {
	sent, lost, doubled, reordered, refused int
	hit                                     int       // moves in which packets were lost
	silence                                 []float64 // ms, the longest gap in each move
}

func (w *movesDirection) add(r testbed.StreamReport) {
	w.sent += r.Sent
	w.lost += r.Lost
	w.doubled += r.Doubled
	w.reordered += r.Reordered
	if r.Lost > 0 {
		w.hit++
	}
	w.silence = append(w.silence, inMS(r.Gap))
}

type movesRig struct {
	env     *Env
	raw     *CSV
	lab     *lab.Lab
	network lab.MobilityDomain
	parts   *testbed.HandoverDeployment
	devices []*movesDevice
	// witness is a device that does not move: what it loses is caused by the machine.
	witness *movesDevice
}

// all returns the devices that move, and the one that does not.
func (rig *movesRig) all() []*movesDevice { return append(slices.Clone(rig.devices), rig.witness) }

func runHandoverMoves(ctx context.Context, env *Env) (*Result, error) {
	cases, err := chosen(env.Only, "case", movesCases(env.Scale), func(c movesCase) string { return c.name })
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("moves", "case", "device", "began", "from", "to", "pause_seconds", "killed_after_seconds", "lease_seconds",
		"up_sent", "up_lost", "up_doubled", "up_gap_seconds", "up_gap_after_seconds",
		"down_sent", "down_lost", "down_doubled", "down_gap_seconds", "down_gap_after_seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	r := &Result{Network: fmt.Sprintf("three levels of switches with two below each; devices with their daemons, a radio of each at each of the %d edges, and packets between each and a server behind the root; links without delay; the class is seamless, all else at its default", movesEdges)}
	for _, c := range cases {
		env.steps += len(c.legs())
	}
	var samples []*movesSamples
	for _, c := range cases {
		s, err := env.moveAbout(ctx, c, raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		samples = append(samples, s)
	}
	movesResult(r, cases, samples)
	return r, nil
}

// legs returns the numbers of moves that are made during each pair of streams.
func (c movesCase) legs() []int {
	var out []int
	for left := c.moves; left > 0; left -= out[len(out)-1] {
		out = append(out, min(movesLeg*c.devices, left))
	}
	return out
}

// moveAbout makes the moves of a case in a network of its own.
func (e *Env) moveAbout(ctx context.Context, c movesCase, raw *CSV) (out *movesSamples, err error) {
	o := lab.MobilityOptions{Interfaces: movesEdges, Devices: c.devices + 1}
	err = e.withLab(ctx, lab.Mobility("moves", o), func(ctx context.Context, l *lab.Lab) error {
		d, err := testbed.DeployHandover(ctx, testbed.HandoverOptions{
			Lab: l, Binary: e.Binary, LogDir: e.Dir, Domains: []testbed.HandoverNetwork{{Name: "home", Network: o.Domain()}},
		})
		if err != nil {
			return err
		}
		defer d.Close()
		rig := &movesRig{env: e, raw: raw, lab: l, network: o.Domain(), parts: d}
		out, err = rig.run(ctx, c)
		return err
	})
	return out, err
}

func (rig *movesRig) run(ctx context.Context, c movesCase) (out *movesSamples, err error) {
	if err := rig.lab.WaitConnected(ctx); err != nil { // switches then look for a controller each second
		return nil, err
	}
	if err := rig.parts.Domains[0].PutClass(ctx, "seamless", handover.ClassSpec{Policy: "seamless"}); err != nil {
		return nil, err
	}
	for i := range c.devices + 1 {
		d, err := rig.startDevice(ctx, c, i)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		if i == c.devices {
			rig.witness = d
			break
		}
		rig.devices = append(rig.devices, d)
	}
	if c.loaded {
		load, err := testbed.StartDaemon(ctx, rig.lab.Control(), "/dev/null", "sh", "-c", "while :; do :; done")
		if err != nil {
			return nil, err
		}
		defer load.Stop()
	}
	out = &movesSamples{}
	for _, n := range c.legs() {
		rig.env.Step("%s: moves %d to %d, %d devices", c.name, out.moves+1, out.moves+n, c.devices)
		if err := rig.leg(ctx, c, n, out); err != nil {
			return nil, fmt.Errorf("after %d moves: %w", out.moves, err)
		}
		rig.env.Logf("lost up %d of %d, down %d of %d; doubled up %d, down %d; lost by the device that stands still %d", out.up.lost, out.up.sent, out.down.lost, out.down.sent, out.up.doubled, out.down.doubled, out.still)
	}
	return out, nil
}

// leg makes some moves during one pair of streams of each device.
func (rig *movesRig) leg(ctx context.Context, c movesCase, n int, out *movesSamples) error {
	defer func() {
		for _, d := range rig.all() {
			d.endStreams()
		}
	}()
	for _, d := range rig.all() {
		if err := d.startStreams(ctx, c.rate); err != nil {
			return err
		}
	}
	began := time.Now()
	before, err := testbed.CountDrops(ctx, rig.lab)
	if err != nil {
		return err
	}
	for _, d := range rig.all() {
		if err := errors.Join(awaitPackets(ctx, d.up, c.rate/10), awaitPackets(ctx, d.down, c.rate/10)); err != nil {
			return err
		}
	}
	if c.killed {
		err = rig.moveUnderKills(ctx, n/c.devices, out)
	} else {
		err = rig.moveEach(ctx, c, n)
	}
	err = errors.Join(err, tasks.Sleep(ctx, movesSettle))
	end := time.Now()
	after, counting := testbed.CountDrops(ctx, rig.lab) // while the streams' sockets are open
	out.drops = out.drops.Plus(after.Since(before))
	if err = errors.Join(err, counting); err != nil {
		return err
	}
	up, down := rig.witness.endStreams()
	for _, log := range []*testbed.StreamLog{up, down} {
		out.still += log.Between(began, end).Lost
	}
	for _, d := range rig.devices {
		if err := rig.countLosses(c, d, end, out); err != nil {
			return err
		}
	}
	return nil
}

// moveEach makes n moves of all devices together, each device at its own times.
func (rig *movesRig) moveEach(ctx context.Context, c movesCase, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	moving, ctx := errgroup.WithContext(ctx)
	for _, d := range rig.devices {
		moving.Go(func() error {
			for left.Add(-1) >= 0 {
				s := d.next(rig.longestPause())
				if err := tasks.Sleep(ctx, s.pause); err != nil {
					return err
				}
				s.began = time.Now()
				var err error
				if c.single {
					s.lease, err = rig.carry(ctx, d, s.to)
				} else {
					s.lease, err = d.move(ctx, s.to)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", d.name, err)
				}
				d.recordMove(s)
			}
			return nil
		})
	}
	return moving.Wait()
}

func (rig *movesRig) longestPause() time.Duration {
	return pick(rig.env.Scale, longestPause/10, longestPause, longestPause)
}

// moveUnderKills moves all devices at once, again and again, kills the controller at a random time
// during each round, and starts it again at once. A move that a device gave up because of that is
// requested again.
func (rig *movesRig) moveUnderKills(ctx context.Context, kills int, out *movesSamples) error {
	home := rig.parts.Domains[0]
	for range kills {
		first := rig.devices[0]
		if err := tasks.Sleep(ctx, first.pause(rig.longestPause())); err != nil {
			return err
		}
		killed := time.Duration(first.random.Int64N(int64(killWithin)))
		var again atomic.Int64
		var moving errgroup.Group
		moving.Go(func() error {
			err := tasks.Sleep(ctx, killed)
			home.Kill()
			return errors.Join(err, home.Start(ctx, rig.parts.Domains), home.AwaitNetwork(ctx))
		})
		for _, d := range rig.devices {
			moving.Go(func() (err error) {
				s := d.next(0)
				s.began, s.killed = time.Now(), killed
				if s.lease, err = d.move(ctx, s.to); err != nil && ctx.Err() == nil {
					again.Add(1)
					rig.env.Logf("%s: %v", d.name, err)
					s.lease, err = d.move(ctx, s.to)
				}
				d.recordMove(s)
				return err
			})
		}
		if err := moving.Wait(); err != nil {
			return err
		}
		out.repeated += int(again.Load())
	}
	return nil
}

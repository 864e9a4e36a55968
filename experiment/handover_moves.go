package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/handover/plugin"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
)

const (
	movesEdges = 4
	movesRate  = 2000 // packets a second, each way
	// movesLeg is how many moves one pair of streams sees: what a stream remembers
	// of its packets is bounded.
	movesLeg = 50
	// The pauses between moves are as often between 0.1 and 1 s as between 1 and 10 s:
	// a device that is back soon meets what its last visit has left in the switches.
	shortestPause, longestPause = 100 * time.Millisecond, 15 * time.Second
	// killWithin is when in a move the controller is killed, at the latest.
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

// movesCase is one way of disturbing the moves.
type movesCase struct {
	name   string
	moves  int
	loaded bool // one core has something else to do
	killed bool // the controller is killed in each move
	// single is a device whose one radio leaves a place before it is at the next.
	single bool
}

func movesCases(s Scale) []movesCase {
	return []movesCase{
		{name: "alone", moves: pick(s, 30, 1000, 3000)},
		{name: "loaded", moves: pick(s, 15, 1000, 3000), loaded: true},
		{name: "killed", moves: pick(s, 3, 50, 200), killed: true},
		{name: "one-radio", moves: pick(s, 4, 50, 200), single: true},
	}
}

// movesSamples is what the moves of a case did.
type movesSamples struct {
	moves    int
	up, down movesWay
	lease    []float64 // ms, from the decision to the network's answer
	repeated int       // moves that had to be asked for again after a kill
	drops    stage.Drops
}

// movesWay is one direction.
type movesWay struct {
	sent, lost, doubled, reordered, refused int
	hit                                     int       // moves in which something was lost
	silence                                 []float64 // ms, the longest in each move
}

func (w *movesWay) add(r stage.StreamReport) {
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
	parts   *stage.HandoverDeployment
	mobile  *stage.Mobile
	random  *rand.Rand
	at      int // the interface that the device uses
}

func runHandoverMoves(ctx context.Context, env *Env) (*Result, error) {
	cases, err := chosen(env.Only, "case", movesCases(env.Scale), func(c movesCase) string { return c.name })
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("moves", "case", "move", "began", "from", "to", "pause_seconds", "killed_after_seconds", "lease_seconds",
		"up_sent", "up_lost", "up_doubled", "up_gap_seconds", "up_gap_after_seconds",
		"down_sent", "down_lost", "down_doubled", "down_gap_seconds", "down_gap_after_seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	r := &Result{Network: fmt.Sprintf("three levels of switches with two below each; a device with its daemon, a radio at each of the %d edges, and %d packets a second to and from a server behind the root; links without delay; the class is seamless, all else at its default", movesEdges, movesRate)}
	for _, c := range cases {
		legs := (c.moves + movesLeg - 1) / movesLeg
		env.steps += legs
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

// moveAbout makes the moves of a case in a network of its own.
func (e *Env) moveAbout(ctx context.Context, c movesCase, raw *CSV) (out *movesSamples, err error) {
	o := lab.MobilityOptions{Interfaces: movesEdges}
	err = e.withLab(ctx, lab.Mobility("moves", o), func(ctx context.Context, l *lab.Lab) error {
		d, err := stage.DeployHandover(ctx, stage.HandoverOptions{
			Lab: l, Binary: e.Binary, LogDir: e.Dir, Domains: []stage.HandoverNetwork{{Name: "home", Network: o.Domain()}},
		})
		if err != nil {
			return err
		}
		defer d.Close()
		rig := &movesRig{env: e, raw: raw, lab: l, network: o.Domain(), parts: d, random: rand.New(rand.NewPCG(1, uint64(c.moves)))}
		out, err = rig.run(ctx, c)
		return err
	})
	return out, err
}

func (rig *movesRig) run(ctx context.Context, c movesCase) (out *movesSamples, err error) {
	home := rig.parts.Domains[0]
	if err := home.PutClass(ctx, "seamless", plugin.ClassSpec{Policy: "seamless"}); err != nil {
		return nil, err
	}
	var names []string
	for i := range movesEdges {
		if i == 0 || !c.single {
			names = append(names, fmt.Sprintf("eth%d", i))
		}
	}
	rig.mobile, err = stage.StartMobile(ctx, stage.MobileOptions{
		Host: rig.lab.Host(theDevice), Binary: rig.env.Binary, LogDir: rig.env.Dir, Home: home, Class: "seamless",
		Device: theDevice, Interfaces: names,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.mobile.Close()) }()
	if c.loaded {
		load, err := stage.StartDaemon(ctx, rig.lab.Control(), "/dev/null", "sh", "-c", "while :; do :; done")
		if err != nil {
			return nil, err
		}
		defer load.Stop()
	}
	out = &movesSamples{}
	for out.moves < c.moves {
		n := min(movesLeg, c.moves-out.moves)
		rig.env.Step("%s: moves %d to %d", c.name, out.moves+1, out.moves+n)
		if err := rig.leg(ctx, c, n, out); err != nil {
			return nil, fmt.Errorf("after %d moves: %w", out.moves, err)
		}
		rig.env.Logf("lost up %d of %d, down %d of %d", out.up.lost, out.up.sent, out.down.lost, out.down.sent)
	}
	return out, nil
}

// movesStep is one move with the pause before it.
type movesStep struct {
	began    time.Time
	pause    time.Duration
	from, to int
	killed   time.Duration // when the controller was killed, if it was
	lease    time.Duration
}

// leg makes some moves under one pair of streams.
func (rig *movesRig) leg(ctx context.Context, c movesCase, n int, out *movesSamples) error {
	device, server := rig.lab.Host(theDevice), rig.lab.Host(rig.network.Server)
	up, err := stage.StartStream(ctx, stage.StreamOptions{
		Sender: device, From: netip.AddrPortFrom(rig.mobile.Addr(), 0), Receiver: server, To: netip.AddrPortFrom(rig.network.ServerAddr, 0), Rate: movesRate,
	})
	if err != nil {
		return err
	}
	down, err := stage.StartStream(ctx, stage.StreamOptions{
		Sender: server, Receiver: device, To: netip.AddrPortFrom(rig.mobile.Addr(), 0), Rate: movesRate,
	})
	if err != nil {
		up.Stop()
		return err
	}
	before, err := stage.CountDrops(ctx, rig.lab)
	err = errors.Join(err, awaitPackets(ctx, up, movesRate/10), awaitPackets(ctx, down, movesRate/10))
	steps := make([]movesStep, 0, n)
	for len(steps) < n && err == nil {
		var step movesStep
		step, err = rig.step(ctx, c, pick(rig.env.Scale, longestPause/10, longestPause, longestPause), out)
		steps = append(steps, step)
	}
	err = errors.Join(err, tasks.Sleep(ctx, movesSettle))
	end := time.Now()
	after, counting := stage.CountDrops(ctx, rig.lab) // while the streams' sockets are there
	out.drops = out.drops.Plus(after.Since(before))
	err = errors.Join(err, counting)
	upLog, downLog := up.Stop(), down.Stop()
	if err != nil {
		return err
	}
	out.up.refused += upLog.Refused()
	out.down.refused += downLog.Refused()
	for i, s := range steps {
		until := end
		if i+1 < len(steps) {
			until = steps[i+1].began
		}
		if err := rig.note(c, s, upLog.Between(s.began, until), downLog.Between(s.began, until), out); err != nil {
			return err
		}
	}
	return nil
}

func (rig *movesRig) note(c movesCase, s movesStep, up, down stage.StreamReport, out *movesSamples) error {
	out.moves++
	out.up.add(up)
	out.down.add(down)
	out.lease = append(out.lease, inMS(s.lease))
	return rig.raw.Row(c.name, out.moves, s.began.UTC().Format("15:04:05.000"), s.from, s.to, s.pause, s.killed, s.lease,
		up.Sent, up.Lost, up.Doubled, up.Gap, up.GapAt.Sub(s.began), down.Sent, down.Lost, down.Doubled, down.Gap, down.GapAt.Sub(s.began))
}

// step waits and moves the device to one of the other edges. What is lost until the
// next step is this one's.
func (rig *movesRig) step(ctx context.Context, c movesCase, longest time.Duration, out *movesSamples) (s movesStep, err error) {
	others := slices.DeleteFunc([]int{0, 1, 2, 3}, func(i int) bool { return i == rig.at })
	s.from, s.to = rig.at, others[rig.random.IntN(len(others))]
	spread := math.Log(float64(longest) / float64(shortestPause))
	s.pause = time.Duration(float64(shortestPause) * math.Exp(spread*rig.random.Float64()))
	if err := tasks.Sleep(ctx, s.pause); err != nil {
		return s, err
	}
	s.began = time.Now()
	switch {
	case c.killed:
		s.killed = time.Duration(rig.random.Int64N(int64(killWithin)))
		s.lease, err = rig.moveUnderKill(ctx, s, out)
	case c.single:
		s.lease, err = rig.carry(ctx, s.to)
	default:
		s.lease, err = rig.move(ctx, s.to)
	}
	rig.at = s.to
	return s, err
}

func (rig *movesRig) move(ctx context.Context, to int) (time.Duration, error) {
	m, err := rig.mobile.Move(ctx, fmt.Sprintf("eth%d", to))
	if err != nil {
		return 0, fmt.Errorf("move to eth%d: %w", to, err)
	}
	return m.Lease, nil
}

// moveUnderKill kills the controller at some moment of the move and starts it again
// at once. A move that the device gave up for it is asked for once more.
func (rig *movesRig) moveUnderKill(ctx context.Context, s movesStep, out *movesSamples) (time.Duration, error) {
	home := rig.parts.Domains[0]
	killed := make(chan error, 1)
	go func() {
		err := tasks.Sleep(ctx, s.killed)
		home.Kill()
		killed <- errors.Join(err, home.Start(ctx, rig.parts.Domains))
	}()
	lease, moved := rig.move(ctx, s.to)
	if err := errors.Join(<-killed, home.AwaitNetwork(ctx)); err != nil {
		return lease, err
	}
	if moved == nil {
		return lease, nil
	}
	out.repeated++
	rig.env.Logf("%v", moved)
	return rig.move(ctx, s.to)
}

// carry takes the device's only radio to another edge.
func (rig *movesRig) carry(ctx context.Context, to int) (time.Duration, error) {
	if err := rig.lab.SetLink(ctx, accessLink(0), false); err != nil {
		return 0, err
	}
	if err := rig.lab.MoveLink(ctx, accessLink(0), rig.network.Edges[to]); err != nil {
		return 0, err
	}
	left := time.Now()
	if err := rig.lab.SetLink(ctx, accessLink(0), true); err != nil {
		return 0, err
	}
	var lease time.Duration
	err := stage.Poll(ctx, "the device's return", func() error {
		s, err := rig.mobile.Status(ctx)
		if err != nil {
			return err
		}
		last := len(s.Moves) - 1
		if last < 0 || s.Moves[last].At.Before(left) || s.Moves[last].Error != "" || s.Active != "eth0" {
			return errors.New("it is not back")
		}
		lease = s.Moves[last].Lease
		return nil
	})
	return lease, err
}

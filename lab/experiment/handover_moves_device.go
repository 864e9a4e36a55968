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

	"github.com/sluice-net/sluice/lab/testbed"
)

// movesDevice is one of the devices that move, with a stream in each direction.
type movesDevice struct {
	*testbed.Mobile
	rig      *movesRig
	name     string
	random   *rand.Rand
	at       int // index of the interface that it uses
	up, down *testbed.Stream
	steps    []movesStep // during the present streams
}

// movesStep is one move with the pause before it.
type movesStep struct {
	began    time.Time
	pause    time.Duration
	from, to int
	killed   time.Duration // when the controller was killed, if it was
	lease    time.Duration
}

// startDevice starts the daemon of the i-th device.
func (rig *movesRig) startDevice(ctx context.Context, c movesCase, i int) (d *movesDevice, err error) {
	d = &movesDevice{rig: rig, name: fmt.Sprintf("dev%d", i+1), random: rand.New(rand.NewPCG(uint64(i+1), uint64(c.moves)))}
	var names []string
	for n := range movesEdges {
		if n == 0 || !c.single {
			names = append(names, fmt.Sprintf("eth%d", n))
		}
	}
	d.Mobile, err = testbed.StartMobile(ctx, testbed.MobileOptions{
		Host: rig.lab.Host(d.name), Binary: rig.env.Binary, LogDir: rig.env.Dir, Home: rig.parts.Domains[0], Class: "seamless",
		Device: d.name, Number: byte(i + 1), Interfaces: names,
	})
	return d, err
}

// startStreams starts a stream in each direction.
func (d *movesDevice) startStreams(ctx context.Context, rate int) (err error) {
	device, server := d.rig.lab.Host(d.name), d.rig.lab.Host(d.rig.network.Server)
	d.steps = nil
	d.up, err = testbed.StartStream(ctx, testbed.StreamOptions{
		Sender: device, From: netip.AddrPortFrom(d.Addr(), 0), Receiver: server, To: netip.AddrPortFrom(d.rig.network.ServerAddr, 0), Rate: rate,
	})
	if err != nil {
		return err
	}
	d.down, err = testbed.StartStream(ctx, testbed.StreamOptions{
		Sender: server, Receiver: device, To: netip.AddrPortFrom(d.Addr(), 0), Rate: rate,
	})
	return err
}

// endStreams ends the streams that still run.
func (d *movesDevice) endStreams() (up, down *testbed.StreamLog) {
	if d.up != nil {
		up = d.up.Stop()
	}
	if d.down != nil {
		down = d.down.Stop()
	}
	d.up, d.down = nil, nil
	return up, down
}

// pause returns a random time between two moves.
func (d *movesDevice) pause(longest time.Duration) time.Duration {
	spread := math.Log(float64(longest) / float64(shortestPause))
	return time.Duration(float64(shortestPause) * math.Exp(spread*d.random.Float64()))
}

// next chooses a move to one of the other edges, after a pause of at most longest.
func (d *movesDevice) next(longest time.Duration) movesStep {
	others := slices.DeleteFunc([]int{0, 1, 2, 3}, func(i int) bool { return i == d.at })
	s := movesStep{from: d.at, to: others[d.random.IntN(len(others))]}
	if longest > 0 {
		s.pause = d.pause(longest)
	}
	return s
}

// move moves the device to another interface.
func (d *movesDevice) move(ctx context.Context, to int) (time.Duration, error) {
	m, err := d.Move(ctx, fmt.Sprintf("eth%d", to))
	if err != nil {
		return 0, fmt.Errorf("move to eth%d: %w", to, err)
	}
	return m.Lease, nil
}

// recordMove records a move.
func (d *movesDevice) recordMove(s movesStep) {
	d.at = s.to
	d.steps = append(d.steps, s)
}

// countLosses ends a device's streams and counts the losses of each move: a packet that is lost before the
// next move begins counts for this one.
func (rig *movesRig) countLosses(c movesCase, d *movesDevice, end time.Time, out *movesSamples) error {
	upLog, downLog := d.endStreams()
	out.up.refused += upLog.Refused()
	out.down.refused += downLog.Refused()
	for i, s := range d.steps {
		until := end
		if i+1 < len(d.steps) {
			until = d.steps[i+1].began
		}
		up, down := upLog.Between(s.began, until), downLog.Between(s.began, until)
		out.moves++
		out.up.add(up)
		out.down.add(down)
		out.lease = append(out.lease, inMS(s.lease))
		if err := rig.raw.Row(c.name, d.name, s.began.UTC().Format("15:04:05.000"), s.from, s.to, s.pause, s.killed, s.lease,
			up.Sent, up.Lost, up.Doubled, up.Gap, up.GapAt.Sub(s.began), down.Sent, down.Lost, down.Doubled, down.Gap, down.GapAt.Sub(s.began)); err != nil {
			return err
		}
	}
	return nil
}

// carry moves a device's only radio to another edge.
func (rig *movesRig) carry(ctx context.Context, d *movesDevice, to int) (time.Duration, error) {
	link := d.name + "-eth0"
	if err := rig.lab.SetLink(ctx, link, false); err != nil {
		return 0, err
	}
	if err := rig.lab.MoveLink(ctx, link, rig.network.Edges[to]); err != nil {
		return 0, err
	}
	left := time.Now()
	if err := rig.lab.SetLink(ctx, link, true); err != nil {
		return 0, err
	}
	var lease time.Duration
	err := testbed.Poll(ctx, "the device's return", func() error {
		s, err := d.Status(ctx)
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

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
)

// These are the number of devices, and the number of their moves a second, that the service must
// sustain.
const (
	scaleDevices = 1000
	scaleRate    = 100
	// scaleLimit is how long a move may take before it counts as lost.
	scaleLimit = 5 * time.Second
)

func handoverScale() Experiment {
	return Experiment{
		Name:     "handover-scale",
		Title:    "Moves a second over the number of devices",
		Question: "How many devices, and how many of their moves a second, does one controller keep up with?",
		Run:      runHandoverScale,
	}
}

// scaleCell is a number of attached devices with a number of moves a second.
type scaleCell struct {
	devices, rate int
}

// scaleRun holds the results of a cell.
type scaleRun struct {
	asked, lost, repeats int
	late                 int       // moves that began late because this machine was busy
	took                 []float64 // ms
	cpu                  float64   // CPU usage of the controller, % of one core
}

type scaleRig struct {
	*roamSite
	env      *Env
	raw      *CSV
	stations []*roamer
	where    []int // index of each device's radio
	busy     []bool
	mu       sync.Mutex
}

func runHandoverScale(ctx context.Context, env *Env) (*Result, error) {
	counts := pick(env.Scale, []int{100, 1000}, []int{10, 100, 1000}, []int{10, 100, 300, 1000})
	rates := pick(env.Scale, []int{100}, []int{10, 50, 100, 200, 400}, []int{10, 50, 100, 200, 400, 800})
	lasts := pick[time.Duration](env.Scale, 10, 10, 20) * time.Second
	raw, err := env.CSV("scale", "devices", "moves_per_second", "number", "took_seconds", "repeats", "lost")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(counts) * (1 + len(rates)))
	o := lab.MobilityOptions{Interfaces: 4}
	r := &Result{Network: "three levels of switches with two below each, links and control connections without delay; simulated devices at the four edges, by real DHCP messages"}
	runs := map[scaleCell]*scaleRun{}
	err = env.withRoaming(ctx, "scale", o, func(ctx context.Context, s *roamSite) error {
		if err := s.domain.PutClass(ctx, "moving", handover.ClassSpec{Policy: "saving", Trigger: "open"}); err != nil {
			return err
		}
		rig := &scaleRig{roamSite: s, env: env, raw: raw}
		for _, n := range counts {
			env.Step("%d devices", n)
			if err := rig.attach(ctx, n); err != nil {
				return err
			}
			for _, rate := range rates {
				cell := scaleCell{n, rate}
				env.Step("%d devices, %d moves a second for %v", n, rate, lasts)
				run, err := rig.run(ctx, cell, lasts)
				if err != nil {
					return fmt.Errorf("%d devices, %d moves a second: %w", n, rate, err)
				}
				runs[cell] = run
				env.Logf("p50 %.1f ms, p99 %.1f ms, %d of %d lost", median(run.took), quantile(run.took, 0.99), run.lost, run.asked)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	scaleResult(r, counts, rates, runs)
	return r, nil
}

// attach adds devices until n have joined.
func (rig *scaleRig) attach(ctx context.Context, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	first := len(rig.stations)
	for i := first; i < n; i++ {
		rig.stations = append(rig.stations, nil)
		rig.where = append(rig.where, i%len(rig.radios))
		rig.busy = append(rig.busy, false)
	}
	for i := first; i < n; i++ {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			d, err := rig.newStation(ctx, uint16(i+1), "moving")
			if err != nil {
				return err
			}
			rig.stations[i] = d
			if _, err := d.Join(ctx, rig.radios[rig.where[i]]); err != nil {
				return fmt.Errorf("device %d: %w", i+1, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// run moves random devices at a steady rate.
func (rig *scaleRig) run(ctx context.Context, c scaleCell, lasts time.Duration) (*scaleRun, error) {
	out := &scaleRun{}
	meter, err := startCPUMeter(rig.domain.PID())
	if err != nil {
		return nil, err
	}
	interval := time.Second / time.Duration(c.rate)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1024)
	began := time.Now()
	for n := 0; time.Duration(n)*interval < lasts; n++ {
		due := began.Add(time.Duration(n) * interval)
		if err := tasks.Sleep(ctx, time.Until(due)); err != nil {
			break // the group has the error
		}
		if time.Since(due) > 50*time.Millisecond {
			out.late++
		}
		i, ok := rig.idle(c.devices)
		if !ok {
			continue // every device is moving: the rate cannot be reached
		}
		group.Go(func() error { return rig.move(ctx, c, i, out) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out.cpu, err = meter.percent()
	return out, err
}

// idle returns a device that is not moving.
func (rig *scaleRig) idle(devices int) (int, bool) {
	rig.mu.Lock()
	defer rig.mu.Unlock()
	start := rand.IntN(devices)
	for k := range devices {
		if i := (start + k) % devices; !rig.busy[i] {
			rig.busy[i] = true
			return i, true
		}
	}
	return 0, false
}

// move moves one device to another edge. A move without an answer counts as lost; one that is
// refused, or changes the address, is an error.
func (rig *scaleRig) move(ctx context.Context, c scaleCell, i int, out *scaleRun) error {
	from := rig.where[i]
	to := (from + 1 + rand.IntN(len(rig.radios)-1)) % len(rig.radios)
	device := rig.stations[i]
	limit, cancel := context.WithTimeout(ctx, scaleLimit)
	e, err := device.Move(limit, rig.radios[to])
	cancel()
	device.Leave(rig.radios[from])
	rig.mu.Lock()
	defer rig.mu.Unlock()
	rig.where[i], rig.busy[i] = to, false
	out.asked++
	out.repeats += e.Repeats
	lost := errors.Is(err, testbed.ErrNoAnswer)
	switch {
	case lost && ctx.Err() == nil:
		out.lost++
	case err != nil:
		return fmt.Errorf("device %d: %w", i+1, err)
	default:
		out.took = append(out.took, inMS(e.Took()))
	}
	return rig.raw.Row(c.devices, c.rate, out.asked, e.Took(), e.Repeats, lost)
}

func scaleResult(r *Result, counts, rates []int, runs map[scaleCell]*scaleRun) {
	table := Table{
		Title:   "A move takes from the device's request to the answer, when all its rules are confirmed",
		Columns: []string{"devices", "moves/s asked", "moved", "lost", "sent again", "p50 ms", "p99 ms", "worst ms", "controller CPU %", "began late"},
	}
	plot := Plot{Name: "scale", Title: "Time of a move", X: "moves a second", Y: "p99, ms", LogX: true}
	for _, n := range counts {
		line := Series{Label: fmt.Sprintf("%d devices", n)}
		for _, rate := range rates {
			run := runs[scaleCell{n, rate}]
			table.Add(n, rate, len(run.took), run.lost, run.repeats, ms1(median(run.took)), ms1(quantile(run.took, 0.99)), ms1(quantile(run.took, 1)),
				fmt.Sprintf("%.0f", run.cpu), run.late)
			if len(run.took) > 0 {
				line.Point(float64(rate), quantile(run.took, 0.99))
			}
			if rate == scaleRate && (n == scaleDevices || n == counts[len(counts)-1]) {
				r.Claim(run.lost == 0 && run.asked > 0, fmt.Sprintf("%d devices, %d moves a second: none lost", n, rate), "%d of %d lost; p50 %.1f ms, p99 %.1f ms", run.lost, run.asked, median(run.took), quantile(run.took, 0.99))
			}
		}
		plot.Series = append(plot.Series, line)
	}
	r.Tables = append(r.Tables, table)
	r.Plots = append(r.Plots, plot)
	r.Note("A lost move is one without an answer within %v, in which the device has asked several times; sent again counts requests that were not answered within 250 ms. The devices share this machine's cores with seven switches and the controller.", scaleLimit)
}

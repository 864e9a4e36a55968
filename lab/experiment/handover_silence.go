package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/mobile"
)

const (
	silenceRate = 1000 // packets a second
	// silencePace is the rate of the TCP sender in bit/s. It is far below what the radios carry, so
	// that TCP waits only for the network.
	silencePace = 10e6
	silencePort = 9000
	// silenceBefore is how long traffic runs before the radio fails, at least. Up to as much again
	// is added at random, because probes are periodic.
	silenceBefore = time.Second
	// silenceAfter is how long traffic is watched after the device has moved.
	silenceAfter = 1500 * time.Millisecond
	// silenceSettled is how long after a radio's return the device is idle.
	silenceSettled = 5 * time.Second
)

func handoverSilence() Experiment {
	return Experiment{
		Name:     "handover-silence",
		Title:    "A radio that fails silently, under a device with default settings",
		Question: "For how long does delivery stop when the radio in use suddenly carries nothing and still looks up, and what does watching for it cost?",
		Varies:   []string{"traffic", "cell"},
		Run:      runHandoverSilence,
	}
}

// silenceTraffic is a kind of traffic in one direction.
type silenceTraffic struct {
	name string
	tcp  bool
	up   bool // traffic from the device
}

func silenceTraffics() []silenceTraffic {
	return []silenceTraffic{
		{name: "udp-down"},
		{name: "udp-up", up: true},
		{name: "tcp-down", tcp: true},
		{name: "tcp-up", tcp: true, up: true},
	}
}

type silenceRig struct {
	env     *Env
	lab     *lab.Lab
	network lab.MobilityDomain
	mobile  *testbed.Mobile
	random  *rand.Rand
	port    uint16
}

func runHandoverSilence(ctx context.Context, env *Env) (*Result, error) {
	all, err := chosen(env.Only, "traffic", silenceTraffics(), func(t silenceTraffic) string { return t.name })
	if err != nil {
		return nil, err
	}
	kinds, err := chosen(env.Only, "cell", silenceCells(), silenceCell.String)
	if err != nil {
		return nil, err
	}
	rawCells, err := env.CSV("cells", "cell", "run", "noticed_seconds")
	if err != nil {
		return nil, err
	}
	defer rawCells.Close()
	raw, err := env.CSV("silence", "traffic", "run", "noticed_seconds", "silence_seconds", "lost", "sent")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	runs := pick(env.Scale, 2, 25, 100)
	idle := pick[time.Duration](env.Scale, 20, 60, 300) * time.Second
	cellRuns := pick(env.Scale, 2, 10, 40)
	env.Steps(len(all) + len(kinds) + 1)
	o := lab.MobilityOptions{Interfaces: 2, Radio: accessLine, Link: silenceBackhaul}
	r := &Result{Network: fmt.Sprintf("three levels of switches; a device with its daemon at its default settings and two radios of %.0f Mbit/s and %v; %d packets a second, or TCP at %.0f Mbit/s", accessLine.Rate/1e6, accessLine.Delay, silenceRate, silencePace/1e6)}
	before := 0 // how often the device left a radio that worked
	noticed, samples := map[string][]float64{}, map[string][]float64{}
	var cellsNoticed map[string][]float64
	var cpu float64
	err = env.withSilence(ctx, o, func(ctx context.Context, rig *silenceRig) error {
		for _, t := range all {
			env.Step("%s: the radio dies %d times", t.name, runs)
			for run := range runs {
				s, n, err := rig.death(ctx, t)
				before += n
				if err != nil {
					return fmt.Errorf("%s, run %d: %w", t.name, run+1, err)
				}
				noticed[t.name] = append(noticed[t.name], inMS(s.noticed))
				samples[t.name] = append(samples[t.name], inMS(s.gap))
				if err := raw.Row(t.name, run+1, s.noticed, s.gap, s.lost, s.sent); err != nil {
					return err
				}
			}
			env.Logf("noticed: median %.0f ms, longest %.0f ms", median(noticed[t.name]), quantile(noticed[t.name], 1))
			env.Logf("silence: median %.0f ms, longest %.0f ms", median(samples[t.name]), quantile(samples[t.name], 1))
		}
		var n int
		var err error
		cellsNoticed, n, err = rig.cells(ctx, kinds, cellRuns, rawCells)
		if before += n; err != nil {
			return err
		}
		env.Step("nothing runs for %v", idle)
		cpu, err = rig.idleCPU(ctx, idle)
		return err
	})
	if err != nil {
		return nil, err
	}
	silenceResult(r, all, noticed, samples, cpu, idle)
	silenceCellsResult(r, kinds, cellsNoticed)
	r.Note("%d times the device left the radio before it died, and the run was repeated: the machine held something up for that long.", before)
	return r, nil
}

// withSilence builds the network, starts controller and device, runs f, and takes everything down
// again.
func (e *Env) withSilence(ctx context.Context, o lab.MobilityOptions, f func(context.Context, *silenceRig) error) error {
	return e.withLab(ctx, lab.Mobility("silence", o), func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := testbed.DeployHandover(ctx, testbed.HandoverOptions{
			Lab: l, Binary: e.Binary, LogDir: e.Dir, Domains: []testbed.HandoverNetwork{{Name: "home", Network: o.Domain()}},
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		if err := d.Domains[0].PutClass(ctx, "seamless", handover.ClassSpec{Policy: "seamless"}); err != nil {
			return err
		}
		m, err := testbed.StartMobile(ctx, testbed.MobileOptions{
			Host: l.Host(theDevice), Binary: e.Binary, LogDir: e.Dir, Home: d.Domains[0], Class: "seamless",
			Device: theDevice, Interfaces: []string{"eth0", "eth1"},
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		return f(ctx, &silenceRig{env: e, lab: l, network: o.Domain(), mobile: m, random: rand.New(rand.NewPCG(1, 2)), port: silencePort})
	})
}

// silenceRun holds the effects of one failure.
type silenceRun struct {
	// noticed is the time from the failure to the daemon's decision to leave the radio, and gap the
	// receiver's longest time without packets.
	noticed    time.Duration
	gap        time.Duration
	lost, sent int // packets; with TCP none are counted
}

// once lets the first radio fail during traffic, and restores it.
func (rig *silenceRig) once(ctx context.Context, t silenceTraffic) (r silenceRun, err error) {
	if err := rig.awaitReturn(ctx); err != nil {
		return r, err
	}
	stop, err := rig.start(ctx, t)
	if err != nil {
		return r, err
	}
	var left mobile.Move
	phase := time.Duration(rig.random.Int64N(int64(silenceBefore)))
	err = tasks.Sleep(ctx, silenceBefore+phase)
	if err == nil {
		err = rig.lab.SetLinkParams(ctx, accessLink(0), lossy(accessLine))
	}
	died := time.Now()
	if err == nil {
		left, err = rig.left(ctx, died)
	}
	if err == nil {
		err = tasks.Sleep(ctx, silenceAfter)
	}
	r = stop(died, time.Now())
	r.noticed = left.At.Sub(died)
	return r, errors.Join(err, rig.lab.SetLinkParams(ctx, accessLink(0), accessLine))
}

// start starts the traffic. The returned function stops it and reports on a span of time.
func (rig *silenceRig) start(ctx context.Context, t silenceTraffic) (stop func(from, to time.Time) silenceRun, err error) {
	device, server := testbed.Inside(rig.lab.Host(theDevice)), testbed.Inside(rig.lab.Host(rig.network.Server))
	here, there := rig.mobile.Addr(), rig.network.ServerAddr
	rig.port++
	if t.tcp {
		o := testbed.PullOptions{Client: device, Server: server, Listen: netip.AddrPortFrom(there, rig.port), Rate: silencePace, Congestion: "cubic"}
		if t.up {
			o.Client, o.Server, o.Listen = server, device, netip.AddrPortFrom(here, rig.port)
		}
		p, err := testbed.StartPull(ctx, o)
		if err != nil {
			return nil, err
		}
		return func(from, to time.Time) silenceRun { return silenceRun{gap: p.Stop().Between(from, to).Silence} }, nil
	}
	o := testbed.StreamOptions{Sender: server, Receiver: device, To: netip.AddrPortFrom(here, rig.port), Rate: silenceRate}
	if t.up {
		o.Sender, o.From, o.Receiver, o.To = device, netip.AddrPortFrom(here, rig.port), server, netip.AddrPortFrom(there, rig.port)
	}
	s, err := testbed.StartStream(ctx, o)
	if err != nil {
		return nil, err
	}
	return func(from, to time.Time) silenceRun {
		report := s.Stop().Between(from, to)
		return silenceRun{gap: report.Gap, lost: report.Lost, sent: report.Sent}
	}, nil
}

// errLeftBefore means that the device left its radio before that failed, because the machine was
// held up for as long as a failure takes to notice.
var errLeftBefore = errors.New("the device left the radio before it died")

// mostLeftBefore bounds how often in a row the device may leave its radio before that fails.
const mostLeftBefore = 5

// death calls once, and calls it again if the device left its radio before the failure. before is
// the number of such repetitions.
func (rig *silenceRig) death(ctx context.Context, t silenceTraffic) (r silenceRun, before int, err error) {
	for before = 0; ; before++ {
		if r, err = rig.once(ctx, t); !errors.Is(err, errLeftBefore) || before == mostLeftBefore {
			return r, before, err
		}
	}
}

// left returns the move by which the device left the failed radio.
func (rig *silenceRig) left(ctx context.Context, died time.Time) (last mobile.Move, err error) {
	err = testbed.Poll(ctx, "the device to use eth1", func() error {
		s, err := rig.mobile.Status(ctx)
		if err != nil {
			return err
		}
		if last = s.Moves[len(s.Moves)-1]; last.To != "eth1" || last.Error != "" {
			return fmt.Errorf("it uses %q", s.Active)
		}
		return nil
	})
	if err == nil && last.At.Before(died) {
		err = fmt.Errorf("%w, by %v, because %s", errLeftBefore, died.Sub(last.At), last.Why)
	}
	return last, err
}

// awaitReturn waits until the device uses its first radio again, and both radios are good.
func (rig *silenceRig) awaitReturn(ctx context.Context) error {
	return testbed.Poll(ctx, "the device to be content with its first radio", func() error {
		s, err := rig.mobile.Status(ctx)
		if err != nil {
			return err
		}
		for _, i := range s.Interfaces {
			if i.Silent || i.Loss > 0 || i.Probes == 0 {
				return fmt.Errorf("%s: %.0f %% of its probes were lost", i.Name, 100*i.Loss)
			}
		}
		if s.Active == "eth0" {
			return nil
		}
		_, err = rig.mobile.Client.Move(ctx, mobile.MoveRequest{Interface: "eth0"})
		return errors.Join(err, fmt.Errorf("it uses %q", s.Active))
	})
}

// idleCPU measures the CPU usage of the daemon without traffic, in percent of a core. It starts
// once the effects of the radio's return (leases, addresses, first probes) are over.
func (rig *silenceRig) idleCPU(ctx context.Context, lasts time.Duration) (float64, error) {
	if err := rig.awaitReturn(ctx); err != nil {
		return 0, err
	}
	if err := tasks.Sleep(ctx, silenceSettled); err != nil {
		return 0, err
	}
	meter, err := startCPUMeter(rig.mobile.PID())
	if err != nil {
		return 0, err
	}
	if err := tasks.Sleep(ctx, lasts); err != nil {
		return 0, err
	}
	return meter.percent()
}

func silenceResult(r *Result, all []silenceTraffic, noticed, samples map[string][]float64, cpu float64, idle time.Duration) {
	table := Table{
		Title:   "From the death of the radio",
		Columns: []string{"traffic", "deaths", "noticed: p50 ms", "p95 ms", "max ms", "silence at the receiver: p50 ms", "p95 ms", "max ms"},
	}
	for _, t := range all {
		n, s := noticed[t.name], samples[t.name]
		table.Add(t.name, len(s), ms1(median(n)), ms1(quantile(n, 0.95)), ms1(quantile(n, 1)), ms1(median(s)), ms1(quantile(s, 0.95)), ms1(quantile(s, 1)))
		r.Claim(median(n) <= 100, t.name+": p50 of the time until it is noticed at most 100 ms", "%.0f ms", median(n))
		r.Claim(quantile(n, 0.95) <= 150, t.name+": p95 of the time until it is noticed at most 150 ms", "%.0f ms", quantile(n, 0.95))
		r.Claim(median(s) <= 100, t.name+": p50 of the silence at most 100 ms", "%.0f ms", median(s))
		r.Claim(quantile(s, 0.95) <= 150, t.name+": p95 of the silence at most 150 ms", "%.0f ms", quantile(s, 0.95))
	}
	r.Tables = append(r.Tables, table)
	r.Claim(cpu <= 1, "idle, the daemon uses at most 1 % of a core", "%.3f %% in %v", cpu, idle)
	r.Note("The radio loses everything in both directions and keeps its carrier. The daemon's configuration names its interfaces and nothing about probes or choices.")
	r.Note("Noticed is when the daemon decides to leave the radio. A TCP sender that has filled its window into the dead radio would wait for its own timeout, 200 ms at least on Linux: the device sends each connection's last segment again, which shows it what was lost.")
}

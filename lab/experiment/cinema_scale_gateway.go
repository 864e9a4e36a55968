package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

// viewersHeldTo is how many WebRTC viewers an egress gateway must serve on one core, at 1 Mbit/s
// each.
const viewersHeldTo = 100

// scaleGateway measures the CPU time of an egress gateway for each viewer.
func scaleGateway(ctx context.Context, env *Env, r *Result) error {
	raw, err := env.CSV("gateway", "buckets", "viewers", "gateway_cpu_seconds", "seconds", "bits_per_second_of_each", "lost")
	if err != nil {
		return err
	}
	defer raw.Close()
	table := Table{
		Title:   "An egress gateway's work for WebRTC viewers of one channel",
		Columns: []string{"buckets", "viewers", "gateway's CPU, % of a core", "Mbit/s to each", "lost", "CPU per viewer at 1 Mbit/s, % of a core", "viewers a core"},
	}
	for _, buckets := range []string{"viewer", "gateway"} {
		last, err := env.gatewayWorks(ctx, buckets, raw, &table)
		if err != nil {
			return err
		}
		r.Claim(1/last.perViewer() >= viewersHeldTo, fmt.Sprintf("an egress gateway has a core for %d WebRTC viewers at 1 Mbit/s, with buckets: %s", viewersHeldTo, buckets), "%.0f, extrapolated from %d", 1/last.perViewer(), last.viewers)
	}
	r.Tables = append(r.Tables, table)
	r.Note("Viewers a core: the CPU time of the gateway's process, less that without viewers, for each viewer and each bit that it is sent, extrapolated to 1 Mbit/s and to one core that nothing else uses. The viewers are WebRTC clients in another process of this machine. With buckets: viewer the switch copies for each viewer, with buckets: gateway the gateway does.")
	return nil
}

// gatewayWorks adds viewers step by step, and returns the gateway's CPU usage with the most
// viewers.
func (e *Env) gatewayWorks(ctx context.Context, buckets string, raw *CSV, table *Table) (last gatewayWork, err error) {
	err = e.withGateway(ctx, buckets, func(ctx context.Context, d *testbed.Deployment, l *lab.Lab) error {
		audience, err := testbed.NewAudience(l.Host(testbed.Viewer), d.PublicURL("out2"))
		if err != nil {
			return err
		}
		defer audience.Close()
		for _, n := range pick(e.Scale, []int{0, 20}, []int{0, 10, 20, 40, 60}, []int{0, 10, 20, 40, 60, 80, 100}) {
			e.Step("%d WebRTC viewers, buckets: %s", n, buckets)
			for audience.Len() < n {
				if err := audience.Join(ctx, treeChannel(1)); err != nil {
					return err
				}
			}
			w, err := work(ctx, d, audience, pick(e.Scale, 5*time.Second, 10*time.Second, 30*time.Second))
			if err != nil {
				return err
			}
			w.idle = last.idle
			if n == 0 {
				w.idle = w.share
			}
			last = w
			if err := raw.Row(buckets, n, w.cpu, w.took, w.each, w.lost); err != nil {
				return err
			}
			if n > 0 {
				table.Add(buckets, n, fmt.Sprintf("%.1f", 100*w.share), fmt.Sprintf("%.2f", w.each/1e6), w.lost, fmt.Sprintf("%.2f", 100*w.perViewer()), fmt.Sprintf("%.0f", 1/w.perViewer()))
			}
		}
		return nil
	})
	return last, err
}

// gatewayWork holds the CPU usage of a gateway.
type gatewayWork struct {
	viewers     int
	cpu, took   time.Duration
	share, idle float64 // shares of a core with viewers and without
	each        float64 // bit/s of RTP to each viewer
	lost        uint64
}

// perViewer returns the share of a core for one viewer at 1 Mbit/s.
func (w gatewayWork) perViewer() float64 {
	return (w.share - w.idle) / float64(w.viewers) * viewerBitRate / w.each
}

func work(ctx context.Context, d *testbed.Deployment, a *testbed.Audience, lasts time.Duration) (w gatewayWork, err error) {
	if err := tasks.Sleep(ctx, 2*time.Second); err != nil { // viewers who have just joined receive a burst
		return w, err
	}
	pid := d.Agent("out2").PID()
	before, err := testbed.CPUTime(pid)
	if err != nil {
		return w, err
	}
	had, began := a.Heard(), time.Now()
	if err := tasks.Sleep(ctx, lasts); err != nil {
		return w, err
	}
	after, err := testbed.CPUTime(pid)
	if err != nil {
		return w, err
	}
	heard := a.Heard()
	w.took, w.cpu, w.viewers = time.Since(began), after-before, a.Len()
	w.share = w.cpu.Seconds() / w.took.Seconds()
	w.each = float64(heard.Bytes-had.Bytes) * 8 / w.took.Seconds() / float64(max(w.viewers, 1))
	w.lost = heard.Lost - had.Lost
	return w, nil
}

// withGateway runs f while a channel with a test pattern of about 1 Mbit/s is on the air.
func (e *Env) withGateway(ctx context.Context, buckets string, f func(context.Context, *testbed.Deployment, *lab.Lab) error) error {
	top, roles := testbed.CinemaNetwork("gateway", delayline.Params{})
	return e.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := testbed.Deploy(ctx, testbed.Options{
			Lab: l, Binary: e.Binary, LogDir: e.Dir, Gateways: roles, EgressConfig: "max_per_address: 500\n", EgressBuckets: buckets,
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		if err := d.AddChannel(ctx, cinema.ChannelSpec{Name: treeChannel(1), Number: 1, Source: "test:", BitRate: zapBitRate}); err != nil {
			return err
		}
		if err := d.WaitOnAir(ctx); err != nil {
			return err
		}
		return f(ctx, d, l)
	})
}

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/match"
)

const (
	// controlRate is the rate of every link in figure 4.4.
	controlRate = 10e6
	// fifoPackets is the queue length of a port without classes: a tenth of a second at that rate,
	// which is a common size and in the range of the dissertation's measurements.
	fifoPackets = 85
	controlPort = 5001
	floodPort   = 5201
)

func qosLatency() Experiment {
	return Experiment{
		Name:     "qos-latency",
		Title:    "Request and response over three switches of 10 Mbit/s under saturating background traffic",
		Question: "How long does control traffic wait behind other traffic, with and without a class of its own?",
		Source:   "QoS dissertation 2018, figure 4.5: 41 to 207 ms without, 3.9 to 5.1 ms with (UDP)",
		Run:      runQoSLatency,
	}
}

// controlLab returns the network of figure 4.4: VM1 and VM2 at the first of three switches, VM3 and
// VM4 at the last. Its links are plain cables: the ports' token buckets give them their rate.
func controlLab(name string) lab.Topology {
	t := lab.Line(name, 3, delayline.Params{})
	t.Hosts, t.Links = nil, t.Links[:0]
	for i, at := range []string{"s1", "s1", "s3", "s3"} {
		vm := fmt.Sprintf("vm%d", i+1)
		t.Hosts = append(t.Hosts, lab.Host{Name: vm})
		t.Links = append(t.Links, lab.Link{A: lab.End{Node: vm}, B: lab.End{Node: at}})
	}
	t.Links = append(t.Links, lab.Both("s1", "s2", delayline.Params{}), lab.Both("s2", "s3", delayline.Params{}))
	return t
}

// controlRig measures control traffic in controlLab.
type controlRig struct {
	env    *Env
	lab    *lab.Lab
	static testbed.Static
	raw    *CSV
	time   time.Duration
	all    []*measured
}

// inControlLab builds the lab, calls run, which has the given number of steps, and returns its
// measurements.
func (e *Env) inControlLab(ctx context.Context, name string, steps int, run func(context.Context, *controlRig) error) ([]*measured, error) {
	raw, err := e.CSV("answers", "run", "request", "seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	e.Steps(steps)
	r := &controlRig{env: e, raw: raw, time: pick(e.Scale, 5*time.Second, 30*time.Second, 60*time.Second)}
	err = e.withLab(ctx, controlLab(name), func(ctx context.Context, l *lab.Lab) error {
		r.lab, r.static = l, testbed.Static{Lab: l, Rate: controlRate, Packets: fifoPackets}
		return run(ctx, r)
	})
	return r.all, err
}

// measured holds the times of one run's answers, in ms.
type measured struct {
	name    string
	took    []float64
	sent    int     // number of requests
	goodput float64 // of the background traffic, in Mbit/s
}

// askInterval is the time from one request to the next.
const askInterval = 10 * time.Millisecond

func (m *measured) quantile(q float64) float64 { return quantile(m.took, q) }

// answered returns the percentage of requests that were answered.
func (m *measured) answered() float64 { return 100 * float64(len(m.took)) / float64(max(m.sent, 1)) }

// measure lets VM1 send requests to VM3 while VM2 sends to VM4: UDP at twice the links' rate, or
// one TCP connection, as in the dissertation.
func (r *controlRig) measure(ctx context.Context, name string, udp bool) error {
	r.env.Step("%s", name)
	if err := awaitReachable(ctx, r.lab.Host("vm1"), r.lab.Host("vm1").Addr(), r.lab.Host("vm3").Addr()); err != nil {
		return err
	}
	background := testbed.Transfer{
		Client: r.lab.Host("vm2"), Server: r.lab.Host("vm4"), To: r.lab.Host("vm4").Addr().String(), Port: floodPort, Time: r.time + 3*time.Second,
	}
	if udp {
		background.UDPRate = "20M"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type sent struct {
		testbed.Goodput
		err error
	}
	done := make(chan sent, 1)
	go func() {
		g, err := background.Run(ctx)
		done <- sent{g, err}
	}()
	m, err := r.probe(ctx, name)
	if err != nil {
		cancel()
	}
	g := <-done
	if err == nil && g.err != nil {
		err = fmt.Errorf("background: %w", g.err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m.goodput = g.Mbit()
	r.all = append(r.all, m)
	r.env.Logf("p50 %.2f ms, p99 %.2f ms, %.1f %% answered; background %.2f Mbit/s", m.quantile(0.5), m.quantile(0.99), m.answered(), m.goodput)
	return nil
}

// probe sends requests once the background traffic has filled the queues.
func (r *controlRig) probe(ctx context.Context, name string) (*measured, error) {
	if err := tasks.Sleep(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	sent, answers, err := testbed.Probe{
		Client: r.lab.Host("vm1"), Server: r.lab.Host("vm3"), To: netip.AddrPortFrom(r.lab.Host("vm3").Addr(), controlPort),
		Interval: askInterval, For: r.time, Bytes: 64,
	}.Run(ctx)
	if err != nil {
		return nil, err
	}
	m := &measured{name: name, sent: sent}
	for _, a := range answers {
		m.took = append(m.took, inMS(a.Took))
		if err := r.raw.Row(name, a.Request, a.Took); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// withClass runs f with a controller that gives control traffic a class of its own.
func (r *controlRig) withClass(ctx context.Context, f func() error) error {
	return r.controlled(ctx, func(n *testbed.Network) error {
		var made classes.Info
		if err := n.Do(ctx, http.MethodPost, classesPath, r.class(), &made); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
		var all classes.Stats
		if err := n.Get(ctx, classesPath+"/control/stats", &all); err != nil {
			return err
		}
		if all.State != classes.StateActive {
			return fmt.Errorf("the class is %s: %s", all.State, all.Reason)
		}
		return nil
	})
}

// controlled runs f with a controller, and classifiers beside the switches.
func (r *controlRig) controlled(ctx context.Context, f func(*testbed.Network) error) (err error) {
	if err := r.static.Clear(ctx); err != nil {
		return err
	}
	stop, err := testbed.StartClassifiers(ctx, r.lab, r.env.Binary, r.env.Dir)
	if err != nil {
		return err
	}
	defer stop()
	n, err := testbed.DeployNetwork(ctx, testbed.NetworkOptions{
		Lab: r.lab, Binary: r.env.Binary, LogDir: r.env.Dir, Interval: time.Second,
		Rate: func(lab.Link) float64 { return controlRate }, Queues: true,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	return f(n)
}

// class returns the class of the control traffic of both directions.
func (r *controlRig) class() classes.ClassSpec {
	one, three := match.Text(r.lab.Host("vm1").Addr().String()), match.Text(r.lab.Host("vm3").Addr().String())
	port := match.Text(fmt.Sprint(controlPort))
	return classes.ClassSpec{Name: "control", Priority: "0", MinRate: "1000000", Flows: []match.Flow{
		{IPv4Src: one, IPv4Dst: three, UDPDst: port},
		{IPv4Src: three, IPv4Dst: one, UDPSrc: port},
	}}
}

func runQoSLatency(ctx context.Context, env *Env) (*Result, error) {
	var s shares
	all, err := env.inControlLab(ctx, "qoslat", 6, func(ctx context.Context, r *controlRig) error {
		both := func(how string) error {
			if err := r.measure(ctx, "UDP background, "+how, true); err != nil {
				return err
			}
			return r.measure(ctx, "TCP background, "+how, false)
		}
		if err := r.static.FIFO(ctx); err != nil {
			return err
		}
		if err := both("without class"); err != nil {
			return err
		}
		if err := r.withClass(ctx, func() error { return both("with class") }); err != nil {
			return err
		}
		return r.controlled(ctx, func(n *testbed.Network) (err error) {
			// The packets let the controller learn the places of both hosts.
			if err := awaitReachable(ctx, r.lab.Host("vm1"), r.lab.Host("vm1").Addr(), r.lab.Host("vm3").Addr()); err != nil {
				return err
			}
			s, err = r.share(ctx, n)
			return err
		})
	})
	if err == nil {
		err = env.provision(ctx, &s)
	}
	if err != nil {
		return nil, err
	}
	res := latencyResult(all)
	s.report(res)
	return res, nil
}

// publishedLatency holds the figures of figure 4.5 as the text gives them.
var publishedLatency = []string{"41 to 207", "no significant impact", "3.9 to 5.1", ""}

func latencyResult(all []*measured) *Result {
	r := &Result{Network: "three switches in a row, 10 Mbit/s by token buckets at every port; two hosts at each end (figure 4.4)"}
	t := Table{Title: "Time from request to response in ms", Columns: []string{"run", "requests", "answers", meanColumn, "least", "p50", "p99", "greatest", "background Mbit/s", "dissertation"}}
	plot := Plot{Name: "latency", Title: "Time from request to response", X: "answer", Y: "ms", LogY: true}
	for i, m := range all {
		t.Add(m.name, m.sent, len(m.took), meanText(m.took, 1, 2), ms2(m.quantile(0)), ms2(m.quantile(0.5)), ms2(m.quantile(0.99)), ms2(m.quantile(1)), fmt.Sprintf("%.2f", m.goodput), publishedLatency[i])
		line := Series{Label: m.name}
		for j, v := range m.took {
			line.Point(float64(j+1), v)
		}
		plot.Series = append(plot.Series, line)
	}
	r.Tables, r.Plots = append(r.Tables, t), append(r.Plots, plot)
	without, with := all[0], all[2]
	r.Claim(with.quantile(0.5) <= 2, "UDP, with class: half of the answers within 2 ms", "%.2f ms", with.quantile(0.5))
	r.Claim(with.quantile(0.99) <= 15, "UDP, with class: 99 % of the answers within 15 ms", "%.2f ms", with.quantile(0.99))
	r.Claim(with.answered() >= 99, "UDP, with class: at least 99 % of the requests are answered", "%.2f %% of %d", with.answered(), with.sent)
	r.Claim(with.goodput >= 8, "UDP, with class: the background still fills the links, 8 of 10 Mbit/s at least", "%.2f Mbit/s", with.goodput)
	r.Claim(without.quantile(0.5) > 40, "UDP, without class: half of the answers take more than 40 ms", "%.2f ms, of %d answers to %d requests", without.quantile(0.5), len(without.took), without.sent)
	r.Claim(all[3].quantile(0.5) <= 2, "TCP, with class: half of the answers within 2 ms", "%.2f ms", all[3].quantile(0.5))
	r.Note("Requests are UDP packets of 64 bytes, one each %v, and none is sent again. The dissertation's were messages over TCP, of which a lost one also waits for TCP's timers.", askInterval)
	r.Note("Without a class requests that find the queue full are lost, and the others show how long it is. Open vSwitch's userspace datapath loses more than the queue refuses: upon one packet that a port refuses, it drops all that it has collected for the port.")
	r.Note("Without a class the ports have one queue of %d packets, a tenth of a second; the dissertation does not say what its machines had.", fifoPackets)
	return r
}

func ms2(v float64) string { return fmt.Sprintf("%.2f", v) }

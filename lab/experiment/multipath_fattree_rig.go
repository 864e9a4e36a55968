package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// fatTreePort is the port of the first flow. Each flow has a port of its own.
const fatTreePort = 20000

// fatTreeRig carries flows in a fat tree.
type fatTreeRig struct {
	env   *Env
	lab   *lab.Lab
	scale fatTreeScale
}

// host returns a host by its number in a matrix.
func (r *fatTreeRig) host(i int) *lab.LiveHost { return r.lab.Host(r.lab.Topology().Hosts[i].Name) }

// run carries the flows of a matrix in one way, with a controller and host agents of their own.
func (r *fatTreeRig) run(ctx context.Context, m trafficMatrix, w fatTreeWay, flows []matrixFlow) (run fatTreeRun, err error) {
	r.env.Step("%s, %s: %d flows in a fat tree of %d hosts", m.name, w.name, len(flows), len(r.lab.Topology().Hosts))
	run = fatTreeRun{matrix: m, way: w}
	n, err := testbed.DeployNetwork(ctx, testbed.NetworkOptions{
		Lab: r.lab, Binary: r.env.Binary, LogDir: r.env.Dir, Interval: max(time.Duration(float64(5*time.Second)/r.scale.pace), time.Second),
		Rate:     func(lab.Link) float64 { return fatTreeRate },
		Settings: "  forwarding: {mode: proactive}\n" + r.sampling(w), Services: r.services(w),
	})
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if w.subflows > 1 {
		stop, err := r.agents(ctx, w.subflows-1)
		defer stop()
		if err != nil {
			return run, err
		}
	}
	if err := r.introduceHosts(ctx, flows); err != nil {
		return run, err
	}
	if err := r.awaitRules(ctx, n); err != nil {
		return run, err
	}
	before, err := r.read(ctx, n)
	if err != nil {
		return run, err
	}
	if run.flows, err = r.carry(ctx, flows, w.subflows > 1); err != nil {
		return run, err
	}
	after, err := r.read(ctx, n)
	run.tcp, run.arp = after.tcp-before.tcp, after.arp-before.arp
	run.joins, run.placed = after.joins-before.joins, after.placed-before.placed
	run.drops = after.drops.Since(before.drops)
	run.cpu = float64(runtime.NumCPU()) - (after.idle-before.idle).Seconds()/after.at.Sub(before.at).Seconds()
	large := run.shares()
	r.env.Logf("large flows get %.1f %% of a link, the middle one %.1f %%; %.2f processors busy", mean(large)*100, median(large)*100, run.cpu)
	return run, err
}

// fatTreeSampling is the sampling rate of switches where plain TCP is placed: one in
// fatTreeSampling packets is sampled.
const fatTreeSampling = 100

// samples reports whether large connections of plain TCP are placed.
func (w fatTreeWay) samples() bool { return w.placed && w.subflows == 1 }

// sampling returns the configuration of sampling for a way.
func (r *fatTreeRig) sampling(w fatTreeWay) string {
	if !w.samples() {
		return ""
	}
	to := netip.AddrPortFrom(r.lab.ControllerAddr().Addr(), 6343)
	return fmt.Sprintf("  measure: both\n  sflow: {listen: \"%v\", collector: \"%v\", sampling: %d}\n", to, to, fatTreeSampling)
}

// services returns the configuration's sections for a way.
func (r *fatTreeRig) services(w fatTreeWay) string {
	text := fmt.Sprintf("qos: {subflows: {enabled: %v, plain_tcp: %v}}\n", w.placed, w.samples())
	if !w.samples() {
		return text
	}
	text += "ovsdb:\n  switches:\n"
	for _, s := range r.lab.Topology().Switches {
		text += fmt.Sprintf("    %016x: %s\n", s.DPID, r.lab.Switch(s.Name).Database())
	}
	return text
}

// agents starts the daemon on every host; stop ends them.
func (r *fatTreeRig) agents(ctx context.Context, subflows int) (stop func(), err error) {
	var daemons []*testbed.Daemon
	stop = func() {
		var all sync.WaitGroup
		for _, d := range daemons {
			all.Go(d.Stop)
		}
		all.Wait()
	}
	for i := range r.lab.Topology().Hosts {
		d, err := testbed.StartHostAgent(ctx, r.host(i), r.env.Binary, r.env.Dir, "--subflows", strconv.Itoa(subflows))
		if err != nil {
			return stop, err
		}
		daemons = append(daemons, d)
	}
	return stop, nil
}

// introduceHosts makes the two hosts of each flow exchange a packet, so that the controller knows
// the hosts, and they know each other's addresses.
func (r *fatTreeRig) introduceHosts(ctx context.Context, flows []matrixFlow) error {
	group := tasks.New()
	defer group.Stop()
	errs := make(chan error, len(flows))
	at := make(chan struct{}, 4*runtime.NumCPU())
	for _, f := range flows {
		at <- struct{}{}
		group.Start(func(context.Context) {
			errs <- awaitReachable(ctx, r.host(f.from), r.host(f.from).Addr(), r.host(f.to).Addr())
			<-at
		})
	}
	var err error
	for range flows {
		err = errors.Join(err, <-errs)
	}
	return err
}

// awaitRules waits until all switches have rules for all hosts.
func (r *fatTreeRig) awaitRules(ctx context.Context, n *testbed.Network) error {
	hosts := float64(len(r.lab.Topology().Hosts))
	return testbed.Poll(ctx, "rules for all hosts", func() error {
		m, err := n.Metrics(ctx)
		if led := m["sluice_network_destinations"]; err == nil && led < hosts {
			err = fmt.Errorf("all switches have rules for %.0f of %.0f hosts", led, hosts)
		}
		return err
	})
}

// hangsAfter bounds the time of a flow, which takes seconds at the rate of a link, and minutes
// behind many others. On some kernels the MPTCP receiver of a connection whose subflows lose much
// stops reading.
const hangsAfter = 10 * time.Minute

var errHangs = errors.New("it hangs")

// carry runs all flows, each at its time.
func (r *fatTreeRig) carry(ctx context.Context, flows []matrixFlow, multipath bool) ([]fatTreeFlow, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := make([]fatTreeFlow, len(flows))
	began := time.Now()
	var running sync.WaitGroup
	for i, f := range flows {
		running.Go(func() {
			if tasks.Sleep(ctx, time.Until(began.Add(f.start))) != nil {
				return
			}
			to := netip.AddrPortFrom(r.host(f.to).Addr(), uint16(fatTreePort+i))
			start := time.Now()
			limited, end := context.WithTimeoutCause(ctx, hangsAfter, errHangs)
			defer end()
			_, err := testbed.Bulk{From: r.host(f.from), To: r.host(f.to), Addr: to, Bytes: f.bytes(fatTreeRate), Multipath: multipath}.Run(limited)
			hangs := err != nil && errors.Is(context.Cause(limited), errHangs)
			if err != nil && !hangs {
				cancel(fmt.Errorf("flow %d: %w", i+1, err))
			}
			out[i] = fatTreeFlow{f, time.Since(start), hangs}
		})
	}
	running.Wait()
	return out, context.Cause(ctx)
}

// fatTreeReading holds what is counted before and after a run.
type fatTreeReading struct {
	at                      time.Time
	idle                    time.Duration
	drops                   testbed.Drops
	tcp, arp, joins, placed float64
}

func (r *fatTreeRig) read(ctx context.Context, n *testbed.Network) (f fatTreeReading, err error) {
	if f.drops, err = testbed.CountDrops(ctx, r.lab); err != nil {
		return f, err
	}
	m, err := n.Metrics(ctx)
	if err != nil {
		return f, err
	}
	const packets, syns = "sluice_network_packet_ins_total", "sluice_qos_subflow_syns_total"
	f.tcp, f.arp = m.SumOf(packets, "kind", "tcp"), m.SumOf(packets, "kind", "arp")
	f.joins, f.placed = m.Sum(syns), m.SumOf(syns, "outcome", "placed")
	f.at = time.Now()
	f.idle, err = testbed.IdleTime()
	return f, err
}

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

// controlIdle is how long messages are counted while there are no flows.
const controlIdle = 10 * time.Second

func multipathControl() Experiment {
	return Experiment{
		Name:     "multipath-control",
		Title:    "What it costs the controller to know large flows: each connection, counters, samples, joins",
		Question: "How many OpenFlow messages a flow does each way to detect large flows cost, and what do large flows gain?",
		Source:   "QoS dissertation 2018, chapter 5; Hedera (Al-Fares et al., NSDI 2010)",
		Varies:   []string{"way"},
		Run:      runMultipathControl,
	}
}

// controlWay is a way to detect large flows, with the program that does it.
type controlWay struct {
	name, what string
	fatTreeWay
	reactive, polled bool
}

var controlWays = []controlWay{
	{name: "pairs", what: "rules for each pair of hosts when it talks, along one path (forwarding.mode: reactive)", fatTreeWay: fatTreeWay{subflows: 1}, reactive: true},
	{name: "hash", what: "rules by destination alone", fatTreeWay: fatTreeWay{subflows: 1}},
	{name: "counters", what: "a rule for each connection where it enters, all of whose counters are read every 5 s, as Hedera has it", fatTreeWay: fatTreeWay{subflows: 1}, polled: true},
	{name: "samples", what: "large connections found by sFlow (qos.subflows.plain_tcp)", fatTreeWay: fatTreeWay{subflows: 1, placed: true}},
	{name: "joins", what: "one further subflow of large connections, opened by the host agent and placed", fatTreeWay: fatTreeWay{subflows: 2, placed: true}},
}

// controlRun holds the numbers of messages of one way, and the flows that were carried.
type controlRun struct {
	controlWay
	flows []fatTreeFlow
	// cost counts the messages during the run, and idle those in a second without flows.
	cost, idle controlCount
}

// controlCount counts messages between a controller and all switches, in both directions, by
// purpose: packet-ins and packet-outs, changes of rules, notices of removed rules, and counters of
// rules. It leaves out messages that find links or read ports, echo messages and barriers.
type controlCount struct{ packets, changes, removed, counters float64 }

// controlled returns the counts by purpose. of returns the number of messages of a kind that are
// about the given thing.
func controlled(of func(kind, about string) float64) (c controlCount) {
	for _, kind := range []string{"packet_in", "packet_out"} {
		c.packets += of(kind, "") // those of LLDP are counted separately
	}
	for _, kind := range []string{"flow_mod", "group_mod", "meter_mod", "experimenter"} {
		c.changes += of(kind, "")
	}
	for _, about := range []string{"flow", "aggregate", "group", "meter"} {
		c.counters += of("multipart_request", about) + of("multipart_reply", about)
	}
	c.removed = of("flow_removed", "")
	return c
}

func (c controlCount) all() float64 { return c.packets + c.changes + c.removed + c.counters }

func (c controlCount) minus(d controlCount) controlCount {
	return controlCount{c.packets - d.packets, c.changes - d.changes, c.removed - d.removed, c.counters - d.counters}
}

func (c controlCount) over(n float64) controlCount {
	return controlCount{c.packets / n, c.changes / n, c.removed / n, c.counters / n}
}

// countedController is a controller whose messages are counted.
type countedController interface {
	// hosts returns an error until n hosts can be reached by all other hosts.
	hosts(ctx context.Context, n int) error
	// begin starts looking for large flows, unless the controller does so from its start.
	begin(ctx context.Context) error
	count(ctx context.Context) (controlCount, error)
	Close() error
}

func runMultipathControl(ctx context.Context, env *Env) (*Result, error) {
	ways, err := chosen(env.Only, "way", controlWays, func(w controlWay) string { return w.name })
	if err != nil {
		return nil, err
	}
	s := pick(env.Scale, fatTreeScale{k: 4, flows: 48, pace: fatTreePace}, fatTreeScale{k: 6, flows: matrixFlows, pace: fatTreePace}, fatTreeScale{k: 6, flows: matrixFlows, pace: 1})
	raw, err := env.CSV("flows", "way", "large", "took_seconds", "share")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(ways))
	t := lab.FatTree("control", s.k, delayline.Params{})
	for i, h := range t.Hosts {
		t.Hosts[i] = ordinary(h)
	}
	flows := matrix1.flows(rand.New(rand.NewPCG(5, 10)), s.k, s.flows, s.pace)
	var all []controlRun
	err = env.withLab(ctx, t, func(ctx context.Context, l *lab.Lab) error {
		if err := testbed.ShapeLinks(ctx, l, func(lab.Link) float64 { return fatTreeRate }); err != nil {
			return err
		}
		r := &messageRig{fatTreeRig{env: env, lab: l, scale: s}}
		for _, w := range ways {
			env.Step("%s: %d flows in a fat tree of %d hosts", w.name, len(flows), len(t.Hosts))
			run, err := r.run(ctx, w, flows)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			for _, f := range run.flows {
				if err := raw.Row(w.name, f.large, f.took, f.share()); err != nil {
					return err
				}
			}
			all = append(all, run)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return controlResult(s, all), nil
}

// messageRig carries the same flows with several controllers.
type messageRig struct{ fatTreeRig }

func (r *messageRig) run(ctx context.Context, w controlWay, flows []matrixFlow) (run controlRun, err error) {
	run = controlRun{controlWay: w}
	c, err := r.startController(ctx, w)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if w.subflows > 1 {
		stop, err := r.agents(ctx, w.subflows-1)
		defer stop()
		if err != nil {
			return run, err
		}
	}
	if err := r.introduceHosts(ctx, r.ring()); err != nil {
		return run, err
	}
	if err := testbed.Poll(ctx, "all hosts", func() error { return c.hosts(ctx, len(r.lab.Topology().Hosts)) }); err != nil {
		return run, err
	}
	if run.idle, err = between(ctx, c, func() error { return tasks.Sleep(ctx, controlIdle) }); err != nil {
		return run, err
	}
	run.idle = run.idle.over(controlIdle.Seconds())
	if err := c.begin(ctx); err != nil {
		return run, err
	}
	run.cost, err = between(ctx, c, func() (err error) { run.flows, err = r.carry(ctx, flows, w.subflows > 1); return err })
	r.env.Logf("%.1f messages a flow; large flows get %.1f %% of a link", run.cost.all()/float64(len(flows)), run.share()*100)
	return run, err
}

// ring returns flows from each host to the next: then all hosts are known, but few pairs know each
// other.
func (r *messageRig) ring() []matrixFlow {
	all := make([]matrixFlow, len(r.lab.Topology().Hosts))
	for i := range all {
		all[i] = matrixFlow{from: i, to: (i + 1) % len(all)}
	}
	return all
}

// between counts the messages while do runs.
func between(ctx context.Context, c countedController, do func() error) (controlCount, error) {
	before, err := c.count(ctx)
	if err != nil {
		return controlCount{}, err
	}
	if err := do(); err != nil {
		return controlCount{}, err
	}
	after, err := c.count(ctx)
	return after.minus(before), err
}

// share returns the mean share of a link that large flows have reached.
func (r controlRun) share() float64 { return mean(fatTreeRun{flows: r.flows}.shares()) }

func controlResult(s fatTreeScale, all []controlRun) *Result {
	r := &Result{Network: fmt.Sprintf("fat tree of k = %d: %d switches, %d hosts, every link %.0f Mbit/s; %d flows of TM1, times divided by %g",
		s.k, s.k*s.k*5/4, s.k*s.k*s.k/4, fatTreeRate/1e6, s.flows, s.pace)}
	t := Table{
		Title:   "OpenFlow messages a flow, in both directions, and large flows' share of a link in percent",
		Columns: []string{"way", "messages", "packets", "changes of rules", "rules gone", "counters", "share", "a second without flows", "small p50 s", "small p99 s"},
	}
	of := map[string]controlRun{}
	for _, run := range all {
		of[run.name] = run
		each, small := run.cost.over(float64(s.flows)), fatTreeRun{flows: run.flows}.of(false, seconds)
		t.Add(run.name, ms2(each.all()), ms2(each.packets), ms2(each.changes), ms2(each.removed), ms2(each.counters), fmt.Sprintf("%.1f", run.share()*100), ms2(run.idle.all()), ms2(median(small)), ms2(quantile(small, 0.99)))
		r.Note("%s: %s.", run.name, run.what)
	}
	r.Tables = append(r.Tables, t)
	joins, measured := of["joins"]
	if polled, ok := of["counters"]; measured && ok {
		r.Claim(joins.cost.all() < polled.cost.all(), "joins cost fewer messages than rules and counters of all connections", "%.0f, counters %.0f", joins.cost.all(), polled.cost.all())
		r.Claim(joins.share() > polled.share(), "and large flows get more", "%.1f %% of a link, with counters %.1f %%", joins.share()*100, polled.share()*100)
	}
	r.Note("Messages are those while the flows run: packets that come up or are sent down, changes of rules, what switches tell of rules that have gone, and counters of rules. What finds links and reads ports, signs of life and barriers do not count: there are as many without flows. A change of several rules of a switch may be one bundle, of which each message counts.")
	r.Note("Counters' controller (package lab/experiment/polling) stands on the same core as Sluice's. Datagrams of sFlow are no OpenFlow messages, and not counted. Hosts know nobody but their neighbour before, so that ARP is among the packets that come up.")
	return r
}

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/hostile"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// hostileClients is the number of clients, and of servers, that make connections.
	hostileClients = 200
	// hostileInterval is the time between two connections: 1,000 a second.
	hostileInterval = time.Millisecond
	// hostileVictims is the number of addresses of other hosts that a switch claims.
	hostileVictims = 100
	// hostileIdle is the time after which Open vSwitch removes an idle flow from its cache, 10 s by
	// default. At each new rule Open vSwitch checks all cached flows. With 20,000 of them this
	// takes a whole processor, which here the controller and the connections need.
	hostileIdle = 500 * time.Millisecond
	// linkDown is the kind of the event that a link has gone down.
	linkDown = "network.link.down"
	// hostileNone is the case without a hostile switch.
	hostileNone = "none"
)

// hostileCount is a number of hostile switches of one kind, with the bounds of their effects:
// maxP99 bounds the 99th percentile of the time in which other connections get an answer, as a
// multiple of that without hostile switches. maxMemory bounds the controller's additional memory in
// MiB.
type hostileCount struct {
	switches  int
	maxP99    float64
	maxMemory int64
}

var hostileCounts = []hostileCount{{1, 2, 200}, {64, 3, 256}}

func hostileSwitch() Experiment {
	return Experiment{
		Name:     "hostile-switch",
		Title:    "New connections between two switches beside hostile switches",
		Question: "Do hostile switches slow the connections of others, cost them links, or fill the controller's memory?",
		Varies:   []string{"kind", "switches"},
		Run:      runHostileSwitch,
	}
}

// hostileCase holds the results with hostile switches of one kind.
type hostileCase struct {
	hostile.Kind
	count    hostileCount
	contacts testbed.Contacts
	linkDown int64
	memory   int64   // bytes of the controller's memory at most, beyond those before the case
	cpu      float64 // cores that the controller used
	others   float64 // cores that unrelated programs used
}

func (c hostileCase) quantile(q float64) float64 {
	var ms []float64
	for _, d := range c.contacts.Took {
		ms = append(ms, inMS(d))
	}
	return quantile(ms, q)
}

type hostileRig struct {
	env       *Env
	lab       *lab.Lab
	network   *testbed.Network
	newcomers *testbed.Newcomers
	raw       *CSV
	others    *testbed.Others
	time      time.Duration // for each kind; a third of it for the case without
	linkDown  atomic.Int64  // links between the two switches that went down
}

func runHostileSwitch(ctx context.Context, env *Env) (*Result, error) {
	kinds, err := chosen(env.Only, "kind", hostile.Kinds(), func(k hostile.Kind) string { return k.Name })
	if err != nil {
		return nil, err
	}
	counts, err := chosen(env.Only, "switches", hostileCounts, func(c hostileCount) string { return strconv.Itoa(c.switches) })
	if err != nil {
		return nil, err
	}
	// The case without a hostile switch runs before each other case and after the last. The machine
	// changes meanwhile, so each case is compared with its two neighbours.
	none := hostileCase{Kind: hostile.Kind{Name: hostileNone}}
	all := []hostileCase{none}
	for _, k := range kinds {
		for _, c := range counts {
			all = append(all, hostileCase{Kind: k, count: c}, none)
		}
	}
	env.Steps(len(all))
	others, err := testbed.WatchOthers(os.Getpid())
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("hostile-switch", "kind", "switches", "connection_seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	rig := &hostileRig{env: env, raw: raw, others: others, time: pick[time.Duration](env.Scale, 10, 60, 300) * time.Second}
	var cases []hostileCase
	err = env.withLab(ctx, lab.Line("hostile", 2, delayline.Params{}), func(ctx context.Context, l *lab.Lab) error {
		rig.lab = l
		cases, err = rig.run(ctx, all)
		return err
	})
	if err != nil {
		return nil, err
	}
	return hostileResult(cases, rig.time), nil
}

// setCacheIdle sets how soon the switches remove idle flows from their caches.
func (rig *hostileRig) setCacheIdle(ctx context.Context) error {
	for _, s := range rig.lab.Topology().Switches {
		if _, err := rig.lab.Switch(s.Name).Vsctl(ctx, "set", "Open_vSwitch", ".", fmt.Sprintf("other_config:max-idle=%d", hostileIdle.Milliseconds())); err != nil {
			return err
		}
	}
	return nil
}

func (rig *hostileRig) run(ctx context.Context, cases []hostileCase) (all []hostileCase, err error) {
	if err := rig.setCacheIdle(ctx); err != nil {
		return nil, err
	}
	rig.network, err = testbed.DeployNetwork(ctx, testbed.NetworkOptions{
		Lab: rig.lab, Binary: rig.env.Binary, LogDir: rig.env.Dir, Interval: time.Second,
		Rate:     func(lab.Link) float64 { return 1e9 },
		Settings: "  forwarding: {idle_timeout: 2s}\n",
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.network.Close()) }()
	if rig.newcomers, err = testbed.OpenNewcomers(rig.lab.Host("h1"), rig.lab.Host("h2"), "eth0", hostileClients); err != nil {
		return nil, err
	}
	defer rig.newcomers.Close()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		rig.watchLinks(watching)
	}()
	defer func() { stop(); <-watched }()
	for _, c := range cases {
		rig.env.Step("%s, %d switches", c.Name, c.count.switches)
		c, err := rig.measure(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s, %d switches: %w", c.Name, c.count.switches, err)
		}
		rig.env.Logf("p50 %.2f, p99 %.2f ms, %d of %d without an answer, %d links lost, %d MiB more, %.2f cores, %.2f for other programs", c.quantile(0.5), c.quantile(0.99), c.contacts.Lost, c.contacts.Lost+len(c.contacts.Took), c.linkDown, c.memory>>20, c.cpu, c.others)
		all = append(all, c)
	}
	return all, nil
}

// watchLinks counts the links that go down.
func (rig *hostileRig) watchLinks(ctx context.Context) {
	for ctx.Err() == nil {
		_ = rig.network.Events(ctx, client.EventsRequest{Kinds: []string{linkDown}}, func(e client.Event) error {
			if e.Kind == linkDown {
				rig.linkDown.Add(1)
			}
			return nil
		})
		_ = tasks.Sleep(ctx, 100*time.Millisecond) // The stream has ended; it is opened again.
	}
}

// measure makes connections beside hostile switches of one kind, and returns the case with its
// results.
func (rig *hostileRig) measure(ctx context.Context, c hostileCase) (_ hostileCase, err error) {
	if err := rig.newcomers.Announce(ctx, time.Millisecond); err != nil {
		return c, err
	}
	if _, err := rig.newcomers.Connect(ctx, hostileInterval, time.Second); err != nil { // to warm up
		return c, err
	}
	pid := rig.network.PID()
	if err := testbed.ResetPeak(pid); err != nil {
		return c, err
	}
	before, err := testbed.PeakMemory(pid)
	if err != nil {
		return c, err
	}
	links := rig.linkDown.Load()
	if c.Name != hostileNone {
		d, err := rig.startHostile(ctx, c)
		if err != nil {
			return c, err
		}
		defer d.Stop()
	}
	lasts := rig.time
	if c.Name == hostileNone {
		lasts /= 3
	}
	if _, err := rig.others.Processors(); err != nil { // to start a new interval
		return c, err
	}
	began := time.Now()
	spent, err := testbed.CPUTime(pid)
	if err != nil {
		return c, err
	}
	if c.contacts, err = rig.newcomers.Connect(ctx, hostileInterval, lasts); err != nil {
		return c, err
	}
	now, err := testbed.CPUTime(pid)
	if err != nil {
		return c, err
	}
	c.cpu = (now - spent).Seconds() / time.Since(began).Seconds()
	if c.others, err = rig.others.Processors(); err != nil {
		return c, err
	}
	peak, err := testbed.PeakMemory(pid)
	if err != nil {
		return c, err
	}
	c.memory, c.linkDown = peak-before, rig.linkDown.Load()-links
	for _, took := range c.contacts.Took {
		if err := rig.raw.Row(c.Name, c.count.switches, took); err != nil {
			return c, err
		}
	}
	return c, nil
}

// startHostile runs the hostile switches of a case as a program of the lowest priority, because on
// a machine of their own they would not use the processors of those they attack.
func (rig *hostileRig) startHostile(ctx context.Context, c hostileCase) (*testbed.Daemon, error) {
	args := []string{
		"hostile-switch", c.Name, "--switches", strconv.Itoa(c.count.switches),
		"--lab", rig.lab.Topology().Name, "--time", (2 * rig.time).String(),
	}
	left := hostileVictims
	rig.newcomers.All(func(mac openflow.MAC, addr netip.Addr) {
		if left--; left >= 0 {
			args = append(args, "--victim", fmt.Sprintf("%v=%v", mac, addr))
		}
	})
	return testbed.StartLowest(ctx, rig.lab.Control(), filepath.Join(rig.env.Dir, fmt.Sprintf("hostile-%s-%d.log", c.Name, c.count.switches)), rig.env.Lab, args...)
}

func hostileResult(all []hostileCase, d time.Duration) *Result {
	r := &Result{Network: fmt.Sprintf("two switches in a row with %d clients behind one and %d servers behind the other; each connection is the first of its pair for long, so that its SYN and the answer each go by the controller; 1,000 a second, %v beside each kind", hostileClients, hostileClients, d)}
	t := Table{Title: "Time from SYN to SYN-ACK in ms", Columns: []string{"switches", "each", "connections", "unanswered", "p50", "p99", "greatest", "p99 to that without", "links lost", "MiB more", "controller's cores", "other programs' cores"}}
	for i, c := range all {
		does, ratio := hostileNone, 1.0
		if c.Name != hostileNone { // Every other case is one without hostile switches; the slower of the two neighbours counts.
			does, ratio = c.Does, c.quantile(0.99)/max(all[i-1].quantile(0.99), all[i+1].quantile(0.99))
		}
		t.Add(c.count.switches, does, len(c.contacts.Took)+c.contacts.Lost, c.contacts.Lost, ms2(c.quantile(0.5)), ms2(c.quantile(0.99)), ms2(c.quantile(1)), fmt.Sprintf("%.2f", ratio), c.linkDown, c.memory>>20, fmt.Sprintf("%.2f", c.cpu), fmt.Sprintf("%.2f", c.others))
		if c.Name == hostileNone {
			continue
		}
		of := fmt.Sprintf("%s, %d switches", c.Name, c.count.switches)
		r.Claim(ratio <= c.count.maxP99, fmt.Sprintf("%s: p99 at most %g times that without", of, c.count.maxP99), "%.2f ms, %.2f times", c.quantile(0.99), ratio)
		r.Claim(c.contacts.Lost == 0, of+": every connection is answered", "%d of %d are not", c.contacts.Lost, len(c.contacts.Took)+c.contacts.Lost)
		r.Claim(c.linkDown == 0, of+": no link is lost", "%d", c.linkDown)
		r.Claim(c.memory>>20 <= c.count.maxMemory, fmt.Sprintf("%s: the controller takes at most %d MiB more", of, c.count.maxMemory), "%d MiB", c.memory>>20)
	}
	r.Tables = append(r.Tables, t)
	r.Note("The hostile switches are a program of the lowest priority on the same cores: on a machine of their own they would take no processor from the switches and the controller. What their packets cost the kernel and the controller is in the figures.")
	r.Note("Other programs are those that ran before, but for the kernel's own threads: what they take, the connections wait for.")
	r.Note("The rules of a pair are gone 2 s after its last packet (forwarding.idle_timeout, 1m by default), so that pairs are new again soon enough.")
	r.Note("What Open vSwitch caches of a pair is gone %v after its last packet (other_config:max-idle, 10s by default): it goes through all of that at each new rule, and takes a processor for it which here the controller and the connections need.", hostileIdle)
	return r
}

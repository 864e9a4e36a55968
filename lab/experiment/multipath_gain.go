package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

const (
	gainWebPort   = 8080
	gainIperfPort = 5201
	gainRsyncPort = 8730
	// gainBytes is the size of the transfers to which gainWanted applies.
	gainBytes = 100_000_000
)

// gainWanted is how many times as fast as plain TCP a transfer of gainBytes must be, by the number
// of paths.
var gainWanted = map[int]float64{2: 1.85, 3: 2.7}

func multipathGain() Experiment {
	return Experiment{
		Name:     "multipath-gain",
		Title:    "Large transfers of unmodified programs over two and three paths",
		Question: "How much faster is a large transfer when its connection gets further subflows, and from what size on?",
		Source:   "QoS dissertation 2018, chapter 5",
		Varies:   []string{"ways", "rate", "size"},
		Run:      runMultipathGain,
	}
}

// gainCase is a network with the transfers in it.
type gainCase struct {
	ways  int
	rate  float64 // of each path, in bit/s
	sizes []int64
	apps  bool // reports whether iperf3 and rsync are measured too
}

// gained holds one transfer's rates by plain TCP and with further subflows.
type gained struct {
	program     string
	ways        int
	rate        float64
	bytes       int64
	plain, many float64 // in bit/s
}

func (g gained) gain() float64 { return g.many / g.plain }

func gainCases(env *Env) (all []gainCase, err error) {
	number := func(v int) string { return strconv.Itoa(v) }
	ways, err := chosenOr(env.Only, "ways", []int{2, 3}, pick(env.Scale, []int{3}, []int{2, 3}, []int{2, 3}), number)
	if err != nil {
		return nil, err
	}
	rates, err := chosenOr(env.Only, "rate", []int{10, 20}, pick(env.Scale, []int{20}, []int{10, 20}, []int{10, 20}), number)
	if err != nil {
		return nil, err
	}
	sizes, err := chosenOr(env.Only, "size", []int{1, 3, 10, 30, 100}, pick(env.Scale, []int{1, 10}, []int{1, 10, 100}, []int{1, 3, 10, 30, 100}), number)
	if err != nil {
		return nil, err
	}
	for _, w := range ways {
		for _, r := range rates {
			c := gainCase{ways: w, rate: float64(r) * 1e6, apps: env.Scale != Quick}
			for _, s := range sizes {
				c.sizes = append(c.sizes, int64(s)*1_000_000)
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// gainLab returns two switches with a host each and parallel paths between them, each over a switch
// of its own.
func gainLab(c gainCase) lab.Topology {
	t := lab.Topology{Name: "mpgain", Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}}, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}}
	t.Links = []lab.Link{lab.Both("a", "s1", delayline.Params{}), lab.Both("b", "s2", delayline.Params{})}
	for i := range c.ways {
		way := fmt.Sprintf("w%d", i+1)
		t.Switches = append(t.Switches, lab.Switch{Name: way})
		for _, end := range []string{"s1", "s2"} {
			t.Links = append(t.Links, lab.Both(end, way, delayline.Params{Rate: c.rate, Queue: 64 << 10, Delay: 2 * time.Millisecond}))
		}
	}
	return t
}

// gainRig measures transfers in the network of gainLab.
type gainRig struct {
	env *Env
	gainCase
	a, b *lab.LiveHost
	dir  string // folder of the servers' files
	raw  *CSV
	all  []gained
}

func runMultipathGain(ctx context.Context, env *Env) (*Result, error) {
	cases, err := gainCases(env)
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("transfers", "program", "ways", "rate", "bytes", "plain_bits_per_second", "many_bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	steps := 0
	for _, c := range cases {
		steps += len(c.sizes)
		if c.apps {
			steps += 2
		}
	}
	env.Steps(steps)
	var all []gained
	for _, c := range cases {
		r := &gainRig{env: env, gainCase: c, raw: raw}
		if err := env.withLab(ctx, gainLab(c), r.run); err != nil {
			return nil, err
		}
		all = append(all, r.all...)
	}
	return gainResult(all), nil
}

// run starts controller, host agents and servers, and transfers everything.
func (r *gainRig) run(ctx context.Context, l *lab.Lab) (err error) {
	r.a, r.b = l.Host("a"), l.Host("b")
	if r.dir, err = os.MkdirTemp(r.env.Dir, "gain-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	n, err := deployGain(ctx, r.env, l, r.gainCase)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	stop, err := startHostAgents(ctx, r.env, l)
	if err != nil {
		return err
	}
	defer stop()
	server, err := testbed.StartWebServer(ctx, testbed.Multipath(r.b), r.dir, r.env.Dir, gainWebPort)
	if err != nil {
		return err
	}
	defer server.Stop()
	for _, size := range r.sizes {
		if err := r.compare(ctx, "curl", size, r.curl); err != nil {
			return err
		}
	}
	if !r.apps {
		return nil
	}
	return errors.Join(r.compare(ctx, "iperf3", gainBytes, r.iperf), r.compare(ctx, "rsync", gainBytes, r.rsync))
}

// deployGain starts a controller that places further subflows, and returns once the hosts reach each
// other.
func deployGain(ctx context.Context, env *Env, l *lab.Lab, c gainCase) (*testbed.Network, error) {
	n, err := testbed.DeployNetwork(ctx, testbed.NetworkOptions{
		Lab: l, Binary: env.Binary, LogDir: env.Dir, Interval: 5 * time.Second, Rate: func(lab.Link) float64 { return c.rate },
		Settings: "  forwarding: {mode: proactive}\n", Services: "qos: {subflows: {enabled: true}}\n",
	})
	if err != nil {
		return nil, err
	}
	if err := awaitReachable(ctx, l.Host("a"), l.Host("a").Addr(), l.Host("b").Addr()); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// startHostAgents starts the host agents of both hosts, and returns a function that stops them.
func startHostAgents(ctx context.Context, env *Env, l *lab.Lab) (stop func(), err error) {
	var agents []*testbed.Daemon
	stop = func() {
		for _, d := range agents {
			d.Stop()
		}
	}
	for _, host := range []string{"a", "b"} {
		d, err := testbed.StartHostAgent(ctx, l.Host(host), env.Binary, env.Dir)
		if err != nil {
			stop()
			return nil, err
		}
		agents = append(agents, d)
	}
	return stop, nil
}

// compare measures a program by plain TCP, and by MPTCP with further subflows.
func (r *gainRig) compare(ctx context.Context, program string, size int64, measure func(context.Context, testbed.Place, int64) (float64, error)) error {
	r.env.Step("%s, %d MB over %d ways of %.0f Mbit/s", program, size/1_000_000, r.ways, r.rate/1e6)
	g := gained{program: program, ways: r.ways, rate: r.rate, bytes: size}
	var err error
	if g.plain, err = measure(ctx, r.a, size); err != nil {
		return fmt.Errorf("%s, plain TCP: %w", program, err)
	}
	if g.many, err = measure(ctx, testbed.Multipath(r.a), size); err != nil {
		return fmt.Errorf("%s, MPTCP: %w", program, err)
	}
	r.env.Logf("plain %.2f, with further subflows %.2f Mbit/s: %.2f times", g.plain/1e6, g.many/1e6, g.gain())
	r.all = append(r.all, g)
	return r.raw.Row(program, r.ways, r.rate, size, g.plain, g.many)
}

// file makes a file of size random bytes, unless it exists.
func (r *gainRig) file(size int64) (name string, err error) {
	name = strconv.FormatInt(size, 10)
	path := filepath.Join(r.dir, name)
	if _, err := os.Stat(path); err == nil {
		return name, nil
	}
	return name, randomFile(path, size)
}

// same returns an error unless the fetched data equals the file of that name.
func (r *gainRig) same(name, fetched string) error {
	want, err := fileSum(filepath.Join(r.dir, name))
	if err != nil {
		return err
	}
	got, err := fileSum(fetched)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s has arrived with other bytes", name)
	}
	return err
}

// curl downloads a file.
func (r *gainRig) curl(ctx context.Context, at testbed.Place, size int64) (float64, error) {
	name, err := r.file(size)
	if err != nil {
		return 0, err
	}
	to := filepath.Join(r.dir, "got")
	d, err := testbed.Curl(ctx, at, fmt.Sprintf("http://%v/%s", netip.AddrPortFrom(r.b.Addr(), gainWebPort), name), to, nil)
	if err == nil {
		err = r.same(name, to)
	}
	return 8 * float64(size) / d.Total.Seconds(), err
}

// iperf uploads for as long as size bytes take at the rate of one path.
func (r *gainRig) iperf(ctx context.Context, at testbed.Place, size int64) (float64, error) {
	server := testbed.Place(r.b)
	if at != testbed.Place(r.a) {
		server = testbed.Multipath(r.b)
	}
	g, err := testbed.Transfer{
		Client: at, Server: server, To: r.b.Addr().String(), Port: gainIperfPort, Time: time.Duration(8 * float64(size) / r.rate * float64(time.Second)),
	}.Run(ctx)
	return g.BitsPerSecond, err
}

// rsync fetches a file from a daemon.
func (r *gainRig) rsync(ctx context.Context, at testbed.Place, size int64) (rate float64, err error) {
	name, err := r.file(size)
	if err != nil {
		return 0, err
	}
	conf := filepath.Join(r.env.Dir, "rsyncd.conf")
	text := fmt.Sprintf("pid file = %s\nuse chroot = no\nuid = root\ngid = root\n[files]\npath = %s\n", conf+".pid", r.dir)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return 0, err
	}
	_ = os.Remove(conf + ".pid") // the file of the previous daemon
	d, err := testbed.StartDaemon(ctx, testbed.Multipath(r.b), filepath.Join(r.env.Dir, "rsyncd.log"), "rsync", "--daemon", "--no-detach", "--config", conf, "--port", strconv.Itoa(gainRsyncPort))
	if err != nil {
		return 0, err
	}
	defer d.Stop()
	if err := testbed.WaitListening(ctx, r.b, gainRsyncPort); err != nil {
		return 0, err
	}
	to := filepath.Join(r.dir, "fetched")
	_ = os.Remove(to) // rsync would send only differences otherwise
	began := time.Now()
	out, err := at.Command(ctx, "rsync", "--whole-file", fmt.Sprintf("rsync://%v/files/%s", netip.AddrPortFrom(r.b.Addr(), gainRsyncPort), name), to).CombinedOutput()
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("rsync: %w: %s", err, out)
	}
	return 8 * float64(size) / took.Seconds(), r.same(name, to)
}

func gainResult(all []gained) *Result {
	r := &Result{Network: "two switches with a host each, and two or three ways of one more switch between them; each way 10 or 20 Mbit/s and 4 ms"}
	t := Table{Title: "Transfers", Columns: []string{"program", "ways", "Mbit/s each", "MB", "plain TCP Mbit/s", "with further subflows Mbit/s", "times"}}
	plot := Plot{Name: "gain", Title: "Gain by size of the transfer, curl", X: "MB", Y: "times as fast as plain TCP", LogX: true}
	lines := map[string]*Series{}
	var order []string
	for _, g := range all {
		t.Add(g.program, g.ways, g.rate/1e6, g.bytes/1_000_000, ms2(g.plain/1e6), ms2(g.many/1e6), ms2(g.gain()))
		if g.program == "curl" {
			label := fmt.Sprintf("%d ways of %.0f Mbit/s", g.ways, g.rate/1e6)
			if lines[label] == nil {
				lines[label] = &Series{Label: label}
				order = append(order, label)
			}
			lines[label].Point(float64(g.bytes)/1e6, g.gain())
		}
		if g.bytes == gainBytes {
			r.Claim(g.gain() >= gainWanted[g.ways], fmt.Sprintf("%s, 100 MB over %d ways of %.0f Mbit/s: at least %.2f times plain TCP", g.program, g.ways, g.rate/1e6, gainWanted[g.ways]),
				"%.2f times, %.2f Mbit/s", g.gain(), g.many/1e6)
		} else {
			r.Claim(g.gain() >= 0.9, fmt.Sprintf("%s, %d MB over %d ways of %.0f Mbit/s: no slower than plain TCP by a tenth", g.program, g.bytes/1_000_000, g.ways, g.rate/1e6),
				"%.2f times", g.gain())
		}
	}
	for _, label := range order {
		plot.Series = append(plot.Series, *lines[label])
	}
	r.Tables, r.Plots = append(r.Tables, t), append(r.Plots, plot)
	r.Note("All settings are the default ones but forwarding.mode: proactive and qos.subflows.enabled: a further subflow for each MiB that a connection has carried, three at most. Programs use MPTCP by mptcpize, and are not changed.")
	r.Note("iperf3 sends for as long as 100 MB take at the rate of one way, from the client; the others fetch files, which are compared.")
	return r
}

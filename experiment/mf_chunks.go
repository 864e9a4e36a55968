package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// chunksWanted is what chunks of so many bytes are held to in frames of an MTU, in bit/s, where plain
// streams reach as much.
var chunksWanted = map[int]map[int]float64{
	1500: {1_000: 100e6, 1_000_000: 1e9},
	9000: {1_000_000: 2e9},
}

func mfChunks() Experiment {
	return Experiment{
		Name:     "mf-chunks",
		Title:    "Chunks to names, by their size, beside plain TCP and UDP",
		Question: "How fast do chunks of each size go from application to application through real switches?",
		Source:   "MobilityFirst thesis 2013: 800 Mbit/s with chunks of 10 MB, a few hundred kbit/s with 1 kB",
		Varies:   []string{"mtu", "size"},
		Run:      runMFChunks,
	}
}

func runMFChunks(ctx context.Context, env *Env) (*Result, error) {
	number := func(v int) string { return strconv.Itoa(v) }
	mtus, err := chosenOr(env.Only, "mtu", []int{1500, 9000}, []int{1500, 9000}, number)
	if err != nil {
		return nil, err
	}
	all := []int{1_000, 10_000, 100_000, 1_000_000, 10_000_000}
	sizes, err := chosenOr(env.Only, "size", all, pick(env.Scale, []int{1_000, 1_000_000}, all, all), number)
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("chunks", "mtu", "what", "chunk_bytes", "run", "bits_per_second", "host_cpu_seconds_per_gigabyte")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	repeats := pick(env.Scale, 1, 3, 5)
	env.Steps(len(mtus) * repeats * (len(sizes) + 2))
	r := &Result{Network: "two hosts, and two switches with a controller between them; no link is shaped, and all of it shares this machine's processors"}
	t := Table{Title: "From application to application, medians", Columns: []string{"MTU", "what", "Mbit/s", "hosts' CPU s/GB"}}
	for _, mtu := range mtus {
		if err := env.chunks(ctx, mtu, sizes, repeats, raw, r, &t); err != nil {
			return nil, fmt.Errorf("MTU %d: %w", mtu, err)
		}
	}
	r.Tables = append(r.Tables, t)
	r.Note("Chunks are sent by sluice mf perf and taken by sluice mf recv, each at a host of its own; counted is what was taken until the last of them was. The first chunk, which finds the way, is not counted. TCP and UDP are iperf3's, one stream each, counted where they arrive, in frames as large as the MTU and not larger; UDP is offered twice what TCP carries.")
	r.Note("CPU is that of the two programs that carry chunks (sluice mf host), user and system, as the scheduler counts it.")
	return r, nil
}

// chunksRig is two hosts with what carries chunks between them.
type chunksRig struct {
	env         *Env
	lab         *lab.Lab
	mtu         int
	hosts       []*stage.Daemon
	name        string // of the receiver
	raw         *CSV
	run         int
	rates, cost map[string][]float64
}

// chunks measures in frames of one MTU.
func (e *Env) chunks(ctx context.Context, mtu int, sizes []int, repeats int, raw *CSV, r *Result, t *Table) error {
	top := lab.Topology{Name: "chunks", Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}}, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}}
	for _, ends := range [][2]string{{"a", "s1"}, {"s1", "s2"}, {"b", "s2"}} {
		l := lab.Both(ends[0], ends[1], delayline.Params{})
		l.MTU = mtu
		top.Links = append(top.Links, l)
	}
	return e.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := stage.Deploy(ctx, stage.Options{Lab: l, Binary: e.Binary, LogDir: e.Dir})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		rig := &chunksRig{env: e, lab: l, mtu: mtu, raw: raw, rates: map[string][]float64{}, cost: map[string][]float64{}}
		defer rig.stop()
		if err := rig.start(ctx); err != nil {
			return err
		}
		for rig.run = range repeats {
			if err := rig.measure(ctx, sizes); err != nil {
				return err
			}
		}
		rig.report(sizes, r, t)
		return nil
	})
}

func (g *chunksRig) socket(host string) string { return filepath.Join(g.env.Dir, host+".sock") }

// start runs a host at both ends, and a receiver at the second.
func (g *chunksRig) start(ctx context.Context) error {
	for _, host := range []string{"a", "b"} {
		log := filepath.Join(g.env.Dir, "mf-"+host+".log")
		d, err := stage.StartDaemon(ctx, g.lab.Host(host), log, g.env.Binary, "mf", "host", "--interface", "eth0", "--socket", g.socket(host))
		if err != nil {
			return err
		}
		g.hosts = append(g.hosts, d)
	}
	var err error
	g.name, err = g.receiver(ctx, 0)
	return err
}

// receiver runs one more receiver at the second host, as soon as that takes applications, and gives its name.
func (g *chunksRig) receiver(ctx context.Context, n int) (name string, err error) {
	log := filepath.Join(g.env.Dir, fmt.Sprintf("mf-recv-%d.log", n))
	before := len(g.hosts)
	err = stage.Poll(ctx, "a receiver", func() error {
		if len(g.hosts) == before {
			d, err := stage.StartDaemon(ctx, g.lab.Host("b"), log, g.env.Binary, "mf", "recv", "--socket", g.socket("b"), "--discard", "--follow")
			if err != nil {
				return err
			}
			g.hosts = append(g.hosts, d)
		}
		select {
		case <-g.hosts[before].Done():
			g.hosts = g.hosts[:before]
		default:
		}
		var is bool
		if _, name, is = strings.Cut(strings.TrimSpace(stage.Tail(log, 1)), "name "); !is {
			return fmt.Errorf("no name in %s", log)
		}
		return nil
	})
	return name, err
}

func (g *chunksRig) stop() {
	for _, d := range g.hosts {
		d.Stop()
	}
}

// measure measures each way once.
func (g *chunksRig) measure(ctx context.Context, sizes []int) error {
	during := pick(g.env.Scale, 2*time.Second, 5*time.Second, 10*time.Second)
	tcp, err := g.plain(ctx, "TCP", "", during)
	if err != nil {
		return err
	}
	if _, err := g.plain(ctx, "UDP", strconv.FormatInt(int64(2*tcp), 10), during); err != nil {
		return err
	}
	for _, size := range sizes {
		if err := g.perf(ctx, size, during); err != nil {
			return err
		}
	}
	return nil
}

// plain measures a stream of iperf3.
func (g *chunksRig) plain(ctx context.Context, what, rate string, during time.Duration) (float64, error) {
	g.env.Step("MTU %d: %s", g.mtu, what)
	got, err := stage.Transfer{
		Client: g.lab.Host("a"), Server: g.lab.Host("b"), To: g.lab.Host("b").Addr().String(), Port: iperfPort, Time: during, Omit: time.Second, UDPRate: rate,
	}.Run(ctx)
	if err != nil {
		return 0, err
	}
	g.rates[what] = append(g.rates[what], got.BitsPerSecond)
	return got.BitsPerSecond, g.raw.Row(g.mtu, what, 0, g.run+1, got.BitsPerSecond, 0)
}

// chunksOf names chunks of a size.
func chunksOf(size int) string { return "chunks of " + units.FormatSize(int64(size)) }

// perf measures chunks of a size.
func (g *chunksRig) perf(ctx context.Context, size int, during time.Duration) error {
	what := chunksOf(size)
	g.env.Step("MTU %d: %s", g.mtu, what)
	before, err := g.spent()
	if err != nil {
		return err
	}
	got, err := g.mfPerf(ctx, g.name, size, "--time", during.String())
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	after, err := g.spent()
	if err != nil {
		return err
	}
	cost := (after - before).Seconds() / (float64(got.Chunks) * float64(size) / 1e9)
	g.rates[what], g.cost[what] = append(g.rates[what], got.BitsPerSecond), append(g.cost[what], cost)
	return g.raw.Row(g.mtu, "chunks", size, g.run+1, got.BitsPerSecond, cost)
}

// perfResult is what sluice mf perf has measured.
type perfResult struct {
	Chunks        int64   `json:"chunks"`
	BitsPerSecond float64 `json:"bits_per_second"`
}

// mfPerf sends chunks of a size from the first host to a name.
func (g *chunksRig) mfPerf(ctx context.Context, to string, size int, more ...string) (got perfResult, err error) {
	args := append([]string{"mf", "perf", "--json", "--socket", g.socket("a"), "--chunk", strconv.Itoa(size)}, more...)
	out, err := g.lab.Host("a").Command(ctx, g.env.Binary, append(args, to)...).Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return got, fmt.Errorf("sluice mf perf to %s: %w", to, err)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		return got, fmt.Errorf("sluice mf perf to %s: %q: %w", to, out, err)
	}
	return got, nil
}

// spent is the processor time of both hosts.
func (g *chunksRig) spent() (all time.Duration, err error) {
	for _, d := range g.hosts[:2] {
		t, err := stage.CPUTime(d.PID())
		if err != nil {
			return 0, err
		}
		all += t
	}
	return all, nil
}

// report adds what was measured.
func (g *chunksRig) report(sizes []int, r *Result, t *Table) {
	plain := 0.0
	for _, what := range []string{"TCP", "UDP"} {
		rate := median(g.rates[what])
		plain = max(plain, rate)
		t.Add(g.mtu, what, fmt.Sprintf("%.0f", rate/1e6), "")
	}
	for _, size := range sizes {
		what := chunksOf(size)
		rate := median(g.rates[what])
		t.Add(g.mtu, what, fmt.Sprintf("%.0f", rate/1e6), fmt.Sprintf("%.1f", median(g.cost[what])))
		if wanted := chunksWanted[g.mtu][size]; wanted > 0 {
			r.Claim(rate >= min(wanted, plain), fmt.Sprintf("MTU %d, %s: at least %.0f Mbit/s, or what a plain stream reaches", g.mtu, what, wanted/1e6), "%.0f Mbit/s; plain: %.0f", rate/1e6, plain/1e6)
		}
	}
}
